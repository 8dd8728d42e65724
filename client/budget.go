// Hot path.

package client

// budget bounds the bytes of records that were accepted and not yet answered. It is a plain
// struct: the publisher's mutex guards it. Waiters are served first come, first served, so a
// large record is not overtaken for ever by small ones.
type budget struct {
	size    int64 // the bound, bytes
	used    int64
	waiters []*budgetWaiter // oldest first
}

// budgetWaiter is one blocked publish. granted is closed once its bytes are taken for it.
type budgetWaiter struct {
	n       int64
	granted chan struct{}
}

// clamp makes a record that is larger than the whole budget cost exactly the budget: it is
// admitted alone instead of waiting for ever.
func (b *budget) clamp(n int64) int64 { return min(n, b.size) }

// take reserves n bytes if there is room and nobody waits before us. n is clamped.
func (b *budget) take(n int64) bool {
	if len(b.waiters) > 0 || b.used+n > b.size {
		return false
	}
	b.used += n
	return true
}

// wait joins the line. The caller blocks on granted outside the mutex.
func (b *budget) wait(n int64) *budgetWaiter {
	w := &budgetWaiter{n: n, granted: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	return w
}

// leave takes w out of the line; it reports false when the bytes were already granted, in which
// case the caller owns them and has to use or give them back.
func (b *budget) leave(w *budgetWaiter) bool {
	for i, x := range b.waiters {
		if x == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.grant() // who stood behind a large record may fit now
			return true
		}
	}
	return false
}

// give returns n bytes and admits whoever is next in line.
func (b *budget) give(n int64) {
	b.used -= n
	if b.used < 0 {
		panic("client: byte budget released twice")
	}
	if len(b.waiters) > 0 {
		b.grant()
	}
}

func (b *budget) grant() {
	served := 0
	for _, w := range b.waiters {
		if b.used+w.n > b.size {
			break
		}
		b.used += w.n
		close(w.granted)
		served++
	}
	if served > 0 {
		b.waiters = append(b.waiters[:0], b.waiters[served:]...)
	}
}
