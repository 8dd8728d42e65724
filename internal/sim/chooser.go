package sim

import "math/rand/v2"

// Chooser is chance that a seed replays.
type Chooser struct{ rng *rand.Rand }

// NewChooser returns the choices of a seed.
func NewChooser(seed uint64) *Chooser {
	return &Chooser{rand.New(rand.NewPCG(seed, 0x73696d))}
}

// N is one of 0..n-1.
func (c *Chooser) N(n int) int { return c.rng.IntN(n) }

// Between is one of lo..hi.
func (c *Chooser) Between(lo, hi int) int { return lo + c.rng.IntN(hi-lo+1) }

// One says yes once in n times.
func (c *Chooser) One(n int) bool { return c.rng.IntN(n) == 0 }

// Seed is a seed for chance of somebody else's.
func (c *Chooser) Seed() uint64 { return c.rng.Uint64() }

// Weighted is an index into weights, each as likely as its weight says.
func (c *Chooser) Weighted(weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := c.rng.IntN(sum)
	for i, w := range weights {
		if at < w {
			return i
		}
		at -= w
	}
	panic("sim: weights have changed")
}

// Pick is one of some things.
func Pick[T any](c *Chooser, of []T) T { return of[c.N(len(of))] }
