// Hot path.

package serve

import (
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// sink is the fanout.Sink of one subscription: it writes frames to an event stream. One goroutine
// at a time.
//
// The transport pays per write and per packet, so that small frames are copied behind each other
// into one buffer and leave in one write. A large frame goes out from where it lies.
type sink struct {
	st    netio.SendStream
	pool  *wire.Pool
	stall time.Duration // longest that one write may take; 0 = no bound
}

// WriteFrames writes frames in order. It blocks under flow control, and fails when the reader ends.
func (k *sink) WriteFrames(frames [][]byte) error {
	if k.stall > 0 {
		if err := k.st.SetWriteDeadline(time.Now().Add(k.stall)); err != nil {
			return err
		}
	}
	for len(frames) > 0 {
		n, size := run(frames)
		if n <= 1 {
			if _, err := k.st.Write(frames[0]); err != nil {
				return err
			}
			frames = frames[1:]
			continue
		}
		if err := k.writeGathered(frames[:n], size); err != nil {
			return err
		}
		frames = frames[n:]
	}
	return nil
}

// run returns how many of the first frames are to be gathered in one write, and their bytes.
func run(frames [][]byte) (n, size int) {
	for _, f := range frames {
		if len(f) >= directBytes || size+len(f) > gatherBytes {
			break
		}
		size += len(f)
		n++
	}
	return n, size
}

func (k *sink) writeGathered(frames [][]byte, size int) error {
	b := k.pool.Get(size)
	at := 0
	for _, f := range frames {
		at += copy(b.Bytes()[at:], f)
	}
	// Write has copied or sent everything when it returns.
	_, err := k.st.Write(b.Bytes())
	b.Release()
	return err
}
