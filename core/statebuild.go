package core

import (
	"bytes"
	"errors"
	"time"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/wire"
)

// stateRetry is how long a failure to build a state is answered before the log is read again.
const stateRetry = 5 * time.Second

// stateView is a shard's place for its keyed state. The executor's.
//
// The state is not there when a broker starts: the first who asks for it, with a read or a commit, has
// it built from the log on a file worker, a page at a time, and asks again when the build has ended.
// A commit is claimed only where the state is there, because only then it is known whether there is
// room for its keys. So every commit that a build must find was in the log before the build began, and
// nothing has to be caught up with.
type stateView struct {
	state *entityState // nil = not built
	build *stateBuild  // the one that runs, or nil
	// failed is why the last build failed; valid until retryAt, in us.
	failed  *wire.Error
	retryAt uint64
}

var (
	errStateNotReady = wire.NewError(wire.CodeShardUnavailable, "the state of the shard is being read from its log").WithReason("not_ready", 100)
	errStateFull     = wire.NewError(wire.CodeLimitExceeded, "the keyed state of this broker is at its bound (state_bytes): delete keys or raise it")
)

// stateBuild reads the state of a shard out of its log. A file worker steps it.
type stateBuild struct {
	shard *shard
	into  *entityState
	pos   uint64
	end   uint64
	err   *wire.Error
	// ended is closed by the executor when the build has ended, well or not.
	ended chan struct{}
}

// newStateView is the place of a shard with this log: one without a record has its state at once.
func newStateView(b *stateBudget, l *log.Log) stateView {
	if l.Base() == l.Next() {
		return stateView{state: newEntityState(b)}
	}
	return stateView{}
}

// stateNow returns the state, or what to wait for before asking again, or why there is none. On the
// executor.
func (s *shard) stateNow() (*entityState, <-chan struct{}, *wire.Error) {
	v := &s.view
	switch {
	case v.state != nil:
		v.state.trim(s.log.Base(), stateTrimMax)
		return v.state, nil, nil
	case s.gone:
		return nil, nil, errNoStream
	case v.build != nil:
		return nil, v.build.ended, nil
	case v.failed != nil && s.exec.micros < v.retryAt:
		return nil, nil, v.failed
	}
	v.failed = nil
	v.build = &stateBuild{
		shard: s, into: newEntityState(s.exec.b.state), pos: s.log.Base(), end: s.visible.Load(), ended: make(chan struct{}),
	}
	s.exec.b.files.push(fileJob{build: v.build})
	return nil, v.build.ended, nil
}

// stateTrimMax is how many keys of deleted segments are forgotten at a time.
const stateTrimMax = 256

// stateBuilt takes the end of a build. On the executor. What was begun before the state was forgotten is
// not for anybody.
func (s *shard) stateBuilt(f *stateBuild) {
	defer close(f.ended)
	v := &s.view
	if v.build != f || s.gone {
		f.into.drop()
		return
	}
	v.build = nil
	if f.err != nil {
		f.into.drop()
		v.failed, v.retryAt = f.err, s.exec.micros+uint64(stateRetry/time.Microsecond)
		return
	}
	s.setState(stateView{state: f.into})
}

func (s *shard) setState(v stateView) {
	s.view = v
	s.hasState.Store(v.state != nil)
}

// forgetState drops the state: what the log holds may be less than what was applied. On the executor.
func (s *shard) forgetState() {
	if s.view.state != nil {
		s.view.state.drop()
	}
	s.setState(stateView{})
}

// step reads one page and says whether the build has ended.
func (f *stateBuild) step() (done bool) {
	if f.pos >= f.end {
		return true
	}
	page, err := f.shard.log.Read(f.pos, historyPageMax)
	if trimmed, ok := errors.AsType[*log.TrimmedError](err); ok && trimmed.Oldest > f.pos {
		f.pos = trimmed.Oldest // what was deleted meanwhile is not part of the state
		return false
	}
	if err != nil {
		f.err = wire.AsError(readError(err))
		return true
	}
	defer page.Release()
	if page.Next == f.pos { // the log has become shorter: it was given up, and so is this
		f.err = errStateNotReady
		return true
	}
	for i := range page.Entries {
		e := &page.Entries[i]
		if e.Kind != log.KindCommit || e.Base >= f.end {
			continue
		}
		if f.err = f.commit(e); f.err != nil {
			return true
		}
	}
	f.pos = page.Next
	return false
}

// commit applies the commit of an entry, copied out of the page.
func (f *stateBuild) commit(e *log.PageEntry) *wire.Error {
	c, err := e.CommitRecord()
	if err != nil {
		return wire.AsError(readError(err))
	}
	for {
		op, key, value, ok := c.Next()
		if !ok {
			break
		}
		if op == log.ChangePut {
			f.into.put(string(key), bytes.Clone(value), e.Base)
		} else {
			f.into.delete(string(key))
		}
		if b := f.into.budget; b.used.Load() > b.max {
			return errStateFull
		}
	}
	f.into.asOf, f.into.any = e.Base, true
	return nil
}
