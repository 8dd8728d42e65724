package core

import (
	"os"
	"path/filepath"
	"testing"
)

// durable.mark of a log at rest is brought up to date within a while, without another publish; and
// then nothing wakes the executor any more.
func TestMarkFollowsALogAtRest(t *testing.T) { // HZ-6, LOG-18
	b := openTest(t, Options{}.in(t.TempDir()))
	st := stream(t, b, StreamDef{Durable: true})
	if res := publish(t, b, st, "x"); res.Err != nil {
		t.Fatal(res.Err)
	}
	mark := filepath.Join(b.shardDir(st.id, 0), "durable.mark")
	eventually(t, "the mark is written", func() bool {
		info, err := os.Stat(mark)
		return err == nil && info.Size() == 32
	})
	eventually(t, "nobody waits for a mark", func() bool {
		n := -1
		if err := b.executors[0].call(func() { n = len(b.executors[0].unmarked) }); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
