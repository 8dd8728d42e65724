package demo

import (
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar is a progress bar on the terminal. A nil one does nothing.
type bar struct {
	pool *mpb.Progress
	bar  *mpb.Bar
	once sync.Once
}

func (r *run) bar(label string, total int64) *bar {
	if !r.o.Bars || r.o.Terminal == nil {
		return nil
	}
	pool := mpb.New(mpb.WithOutput(r.o.Terminal), mpb.WithWidth(50))
	return &bar{pool: pool, bar: pool.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(label+" "), decor.CountersKibiByte("% .1f / % .1f")),
		mpb.AppendDecorators(decor.Percentage(), decor.AverageSpeed(decor.SizeB1024(0), " % .1f")))}
}

func (b *bar) add(n int64) {
	if b != nil {
		b.bar.IncrInt64(n)
	}
}

// end takes the bar away and waits for its goroutines. It may be called twice.
func (b *bar) end() {
	if b != nil {
		b.once.Do(func() {
			b.bar.Abort(true)
			b.pool.Wait()
		})
	}
}
