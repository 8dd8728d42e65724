package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/bbolt"
)

// The lines are what both sides say; the test of the same name in perf/append reads the same file.
func TestConversationIsTheSameOnBothSides(t *testing.T) {
	b, err := os.ReadFile("../append/testdata/peers.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	values := []any{&hello{}, &request{}, &answer{}, &answer{}}
	if len(lines) != len(values) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, v := range values {
		if err := json.Unmarshal(lines[i], v); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(v); err != nil || !bytes.Equal(got, lines[i]) {
			t.Errorf("line %d\ngot  %s\nwant %s", i+1, got, lines[i])
		}
	}
}

// Every peer answers a load with what it measured, and a wrong request with a reason; the
// conversation goes on after that.
func TestEveryPeerIsMeasured(t *testing.T) {
	var in bytes.Buffer
	ask := func(r request) {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(b, '\n'))
	}
	good := request{Cell: Cell{Writers: 4, Logs: 2, Bytes: 100, Fsync: "on_commit"}, Warm: time.Millisecond, Length: 100 * time.Millisecond, BytesMax: 1 << 20}
	for _, k := range kinds {
		r := good
		r.Peer, r.Dir = k.name, t.TempDir()
		ask(r)
	}
	wrong := good
	wrong.Peer = "nosuch"
	ask(wrong)
	wrong.Peer, wrong.Cell.Fsync = "bbolt", "none"
	ask(wrong)
	in.WriteString("not a line of JSON\n")

	var out bytes.Buffer
	if err := serve(&in, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1+len(kinds)+3 {
		t.Fatalf("%d lines", len(lines))
	}
	var h hello
	if err := json.Unmarshal([]byte(lines[0]), &h); err != nil || h.Protocol != protocol || len(h.Peers) != len(kinds) {
		t.Errorf("hello %+v, %v", h, err)
	}
	for i, text := range lines[1:] {
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		switch {
		case i >= len(kinds):
			if a.Error == "" || a.Measure != nil {
				t.Errorf("a wrong request was answered with %s", text)
			}
		case a.Measure == nil || a.Measure.Records == 0 || a.Measure.P50 <= 0 || a.Measure.P99 < a.Measure.P50 || a.Measure.Time < 100*time.Millisecond:
			t.Errorf("%s: %s", kinds[i].name, text)
		}
	}
}

// What append has returned from is in the files: each record of each writer, under a key of its own.
func TestPeersStoreEveryRecord(t *testing.T) {
	const writers, logs, each = 4, 3, 25
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := k.open(dir, Cell{Writers: writers, Logs: logs})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			errs := make([]error, writers)
			for w := range writers {
				wg.Go(func() {
					for n := 0; n < each && errs[w] == nil; n++ {
						errs[w] = s.append(w, n%logs, fmt.Appendf(nil, "%d/%d", w, n))
					}
				})
			}
			wg.Wait()
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			if strings.HasPrefix(k.name, "bbolt") {
				readBolt(t, dir, got)
			} else {
				readPebble(t, dir, got)
			}
			for w := range writers {
				if errs[w] != nil {
					t.Error(errs[w])
				}
				for n := range each {
					if name := fmt.Sprintf("%d/%d", w, n); got[name] != 1 {
						t.Errorf("%s is there %d times", name, got[name])
					}
				}
			}
		})
	}
}

func readBolt(t *testing.T, dir string, into map[string]int) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, v []byte) error { into[string(v)]++; return nil })
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readPebble(t *testing.T, dir string, into map[string]int) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		into[string(it.Value())]++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
}
