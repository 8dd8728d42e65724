package ring

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// HZ-20: an engine whose proof is not answered is refused, so that a start goes on with the next kind;
// it is given up without waiting for the kernel, and its goroutines end.
func TestEngineThatOwesAnAnswerIsGivenUp(t *testing.T) {
	openEngine(t, URing, 4)
	e, err := openURing(newSysKernel(), URingOptions{Depth: 4})
	if err != nil {
		t.Fatal(err)
	}
	// An operation that nobody has handed to the kernel: it never ends.
	s := e.free.tryPop()
	why := fmt.Errorf("proof: %w", answered(make(chan struct{}), time.Millisecond))
	giveUp(e, why)
	select {
	case <-e.ended:
	default:
		t.Error("the reaper goes on")
	}
	if s == nil || len(silent) == 0 {
		t.Error("what the kernel may still look at is not kept")
	}
	if _, refused := errors.AsType[refusedError](why); !refused || !errors.Is(why, errSilent) {
		t.Error("auto does not go on to the next kind")
	}
}
