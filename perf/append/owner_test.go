package append

import (
	"errors"
	"math"
	"testing"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Once the owner was told to stop it begins nothing, also when a sync of periodic logs is due: the
// executor's last step comes after the logs were found quiet, and they are closed behind it.
func TestStoppedOwnerBeginsNothing(t *testing.T) {
	engine, _, err := ring.Open(ring.Portable, ring.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := Cell{Writers: 1, Logs: 4, Bytes: 100, Fsync: "periodic"}
	o, err := startOwner(engine, t.TempDir(), c, log.FsyncPeriodic, true, wire.NewPool(1<<20), asUsual())
	if err != nil {
		t.Fatal(err)
	}
	call := func(f func()) {
		task := newTask(taskCall, nil)
		task.call = f
		o.inbox.Push(&task.node)
	}
	call(func() { o.nextTick = math.MaxInt64 }) // no sync before the end
	for _, s := range o.logs {
		task := newTask(taskAppend, s)
		task.done = make(chan error, 1)
		task.entry = log.Entry{Kind: log.KindRecords, Count: 1, Section: wire.AppendSection(nil, make([]byte, c.Bytes))}
		o.inbox.Push(&task.node)
		if err := <-task.done; err != nil {
			t.Fatal(err)
		}
	}
	call(func() { o.stopping, o.nextTick = true, 0 })
	if err := errors.Join(o.stopNow(), engine.Close()); err != nil {
		t.Fatal(err)
	}
	for i, s := range o.logs {
		if st := s.log.Stats(); st.Syncs != 0 || st.Records != 1 {
			t.Errorf("log %d: %+v", i, st)
		}
	}
}
