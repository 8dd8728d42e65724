package wire

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/ringcast/ringcast/internal/invariants"
)

// Checks of Buf and Pool that run in invariants builds only.

// poison fills released memory. As a length it is absurd, as text it is not UTF-8.
const poison = 0xDB

// holder is the stack of the goroutine that released a Buf.
type holder struct {
	pcs [16]uintptr
	n   int
}

func (h *holder) String() string {
	if h == nil {
		return "unknown (build with -tags invariants)"
	}
	var b strings.Builder
	frames := runtime.CallersFrames(h.pcs[:h.n])
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\n\t%s %s:%d", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}

// bury poisons b, whose last reference is gone, and returns a new Buf with its memory: b itself
// stays dead, so that a second Release of it cannot hit its next holder.
func (b *Buf) bury() *Buf {
	b.last = &holder{}
	b.last.n = runtime.Callers(3, b.last.pcs[:])
	fill(b.mem)
	heir := &Buf{mem: b.mem, pool: b.pool, class: b.class, last: b.last}
	b.mem = nil
	return heir
}

// fill poisons mem.
func fill(mem []byte) {
	for i := range mem {
		mem[i] = poison
	}
}

// exhume checks that nobody wrote to b's memory while it was free.
func (b *Buf) exhume() {
	for i, c := range b.mem {
		if c != poison {
			panic(fmt.Sprintf("wire: byte %d of a Buf was written after its release by%v", i-Headroom, b.last))
		}
	}
}

// mustLive panics if b was released.
func (b *Buf) mustLive(what string) {
	if b.refs.Load() <= 0 {
		b.misused(what + " of a released Buf")
	}
}

func (b *Buf) misused(what string) {
	if invariants.Enabled {
		panic(fmt.Sprintf("wire: %s, last released by%v", what, b.last))
	}
	panic("wire: " + what)
}
