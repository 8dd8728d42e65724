package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
)

// commitLog is what the committers of TestCommitsSurviveSIGKILLWhole were told: events by offset. A writer
// puts "name/n" under the key "name" with each event "name/n"; "if" only publishes, conditionally.
type commitLog struct {
	mu    sync.Mutex
	acked map[uint64]string
	sent  map[string]int
}

// COM-1, PUB-25: the broker is killed at random moments under committers and a conditional publisher, with
// every engine. After each restart every answered commit is there at its offset, every event is there
// once, and the state of each key is that of the newest event of its writer, no older and no newer.
func TestCommitsSurviveSIGKILLWhole(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if why := refusal(t, engine); why != "" {
				t.Logf("engine %s is refused: %s", engine, why)
				return
			}
			wrap, args := onEngine(t, engine)
			d, err := daemon.Start(t.Context(), daemon.Options{
				Bin: bin, Wrap: wrap, Data: filepath.Join(t.TempDir(), "data"), Args: append(args, "--durable-segment-bytes=64KiB"),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Kill()
			c, err := d.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			l := &commitLog{acked: map[uint64]string{}, sent: map[string]int{}}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			for round := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), roundTimeout)
				quit := make(chan struct{})
				var wg sync.WaitGroup
				for _, name := range []string{"a", "b", "c", "if"} {
					wg.Go(func() { l.write(ctx, t, c, name, quit) })
				}
				<-time.After(time.Duration(50+rng.IntN(250)) * time.Millisecond) // the random moment
				d.Kill()
				close(quit)
				wg.Wait()
				if err := d.Restart(ctx); err != nil {
					t.Fatalf("restart %d: %v", round, err)
				}
				l.check(ctx, t, c)
				cancel()
			}
			if len(l.acked) < 30 {
				t.Errorf("only %d commits were answered: the test tested nothing", len(l.acked))
			}
		})
	}
}

func (l *commitLog) write(ctx context.Context, t *testing.T, c *client.Client, name string, quit <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a call to a dead broker is given up; ends with the writer
		select {
		case <-quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	tail := uint64(0)
	for ctx.Err() == nil {
		l.mu.Lock()
		l.sent[name]++
		text := fmt.Sprint(name, "/", l.sent[name])
		l.mu.Unlock()
		var at uint64
		var err error
		if name == "if" {
			at, err = c.PublishIf(ctx, streamName, tail, [][]byte{[]byte(text)})
			if err == nil && at != tail {
				t.Errorf("%s is at %d, expected was %d", text, at, tail)
			}
			if m, ok := errors.AsType[*client.OffsetMismatchError](err); ok {
				tail = m.Tail
			}
		} else {
			at, err = c.Commit(ctx, streamName, nil, []byte(text), []client.Change{client.Put(name, []byte(text)), client.Delete("gone"), client.Put(text, nil)})
		}
		if err == nil {
			l.mu.Lock()
			l.acked[at] = text
			l.mu.Unlock()
			tail = at + 1
		}
	}
}

// check compares log and state with what was told.
func (l *commitLog) check(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	seen := map[string]uint64{}
	newest := map[string]uint64{}
	asOf := uint64(0)
	for from := uint64(0); ; {
		p, err := c.ReadStream(ctx, streamName, 0, from)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			text := string(r.Payload)
			if at, twice := seen[text]; twice {
				t.Errorf("%s is at %d and at %d", text, at, r.Offset)
			}
			seen[text] = r.Offset
			var name string
			for _, name = range []string{"a", "b", "c", "if"} {
				if text[:len(name)] == name {
					break
				}
			}
			if name != "if" {
				newest[name], asOf = r.Offset, r.Offset
			}
		}
		if p.Next == from {
			break
		}
		from = p.Next
	}
	for at, text := range l.acked {
		if got, ok := seen[text]; !ok || got != at {
			t.Errorf("%s was answered with offset %d, and is there: %v, at %d", text, at, ok, got)
		}
	}
	for text, at := range seen {
		s, err := c.StateGet(ctx, streamName, nil, text)
		if has := s.Value != nil; err != nil || has != (text[0] != 'i') || has && s.Version != at || s.AsOf != asOf {
			t.Errorf("event %s at %d, its state %q@%d as of %d, want %d; %v", text, at, s.Value, s.Version, s.AsOf, asOf, err)
		}
	}
	for name, at := range newest {
		s, err := c.StateGet(ctx, streamName, nil, name)
		if err != nil || s.Version != at || seen[string(s.Value)] != at {
			t.Errorf("state of %s is %q@%d, its newest event is at %d; %v", name, s.Value, s.Version, at, err)
		}
	}
	t.Logf("%d events, %d answered", len(seen), len(l.acked))
}
