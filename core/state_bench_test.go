package core

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkStateBuild is the first read of a state after a start: of a log of plain records, which are read
// and checked for nothing, and of one of commits.
func BenchmarkStateBuild(b *testing.B) {
	for _, kind := range []string{"plain", "commits"} {
		b.Run("log="+kind, func(b *testing.B) {
			o := Options{PublishQueueWait: time.Minute, PublishQueueDepth: 1000}.in(b.TempDir())
			def := StreamDef{Durable: true, Fsync: "none"}
			broker := openTest(b, o)
			st := stream(b, broker, def)
			res := newResults()
			value := strings.Repeat("v", 4000)
			const n = 8000
			for i := range uint64(n) {
				var err error
				if kind == "plain" {
					r := request(broker, st, value)
					r.Reply, r.Tag = res, i
					err = broker.Publish(b.Context(), r)
				} else {
					err = broker.Commit(b.Context(), &PublishRequest{Stream: st, Reply: res, Tag: i}, nil, []Change{put(fmt.Sprint(i%1000), value)})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for i := range uint64(n) {
				res.wait(b, i)
			}
			closeTest(b, broker)
			broker = openTest(b, o)
			st = stream(b, broker, def)
			sh := st.shards[0]
			b.SetBytes(n * 4096)
			for b.Loop() {
				if err := sh.exec.call(sh.forgetState); err != nil {
					b.Fatal(err)
				}
				if _, err := broker.State(b.Context(), st, 0, "1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
