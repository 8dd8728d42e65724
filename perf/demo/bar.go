package demo

import "sync"

// Bar shows how far something long is. Add comes from several goroutines.
type Bar interface {
	Add(bytes int64)
	End()
}

// bar is a Bar that is ended once, and may be missing.
type bar struct {
	shown Bar // nil = nothing is shown
	once  sync.Once
}

func (r *run) bar(label string, total int64) *bar {
	if r.o.NewBar == nil {
		return &bar{}
	}
	return &bar{shown: r.o.NewBar(label, total)}
}

func (b *bar) add(n int64) {
	if b.shown != nil {
		b.shown.Add(n)
	}
}

func (b *bar) end() {
	if b.shown != nil {
		b.once.Do(b.shown.End)
	}
}
