package core

import (
	"math"
	"slices"
	"time"

	"github.com/ringcast/ringcast/log"
)

// Retention runs on the executors, by their own timer: each looks at its limited shards once in an
// interval. A look takes what is too much out of a log in memory; the file workers delete it. No
// append does anything for it.

// retention is the bounds in force: each is the stream's own, the broker's where it has none.
func (s *Stream) retention() log.Retention {
	def, o := s.def.Load(), &s.broker.opts
	if !def.Durable {
		return log.Retention{}
	}
	r := log.Retention{Bytes: o.RetentionBytes, Age: o.RetentionAge}
	if def.RetentionBytes != nil {
		r.Bytes = *def.RetentionBytes
	}
	if n := def.RetentionSeconds; n != nil {
		r.Age = math.MaxInt64
		if *n <= math.MaxInt64/int64(time.Second) {
			r.Age = time.Duration(*n) * time.Second
		}
	}
	return r
}

// applyRetention hands changed bounds to the open logs, which are looked at at once. defMu is held.
func (s *Stream) applyRetention() error {
	for _, sh := range s.shards {
		err := sh.exec.call(func() {
			sh.limit()
			sh.look()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// limit gives the log its bounds. On the executor, or before it runs.
func (s *shard) limit() {
	r := s.stream.retention()
	s.log.SetRetention(r)
	e := s.exec
	e.limited = slices.DeleteFunc(e.limited, func(other *shard) bool { return other == s })
	if r != (log.Retention{}) && !s.gone {
		e.limited = append(e.limited, s)
	}
}

// look takes out of the log what its bounds do not allow. What readers may see is safe to delete: no other
// broker may need it, because a majority holds it (LOG-16).
func (s *shard) look() {
	s.log.Retain(uint64(s.exec.b.opts.Now().UnixMicro()), s.visible.Load())
	s.exec.markDirty(s)
}

// retention looks at the limited shards when it is time, and returns when to do so next. An executor
// that stops leaves what is due to the next process.
func (e *executor) retention(now int64) (wakeAt int64) {
	if len(e.limited) == 0 || e.stopping {
		return 0
	}
	if now >= e.nextRetain {
		e.nextRetain = now + int64(e.b.opts.RetentionInterval)
		for _, s := range e.limited {
			s.look()
		}
	}
	return e.nextRetain
}

// holdRetention: the files of a shard that leaves are deleted without it, or later.
func (s *shard) holdRetention() {
	if s.log != nil {
		s.log.HoldRetention()
	}
}

// trimmed counts what a job deleted.
func (s *shard) trimmed(job *log.Job) {
	segments, bytes, err := job.Trimmed()
	st := &s.exec.stats
	st.trimmed += uint64(segments)
	st.trimmedBytes += uint64(bytes)
	if err != nil {
		st.trimFailed++
		s.exec.b.opts.Logger.Warn("a segment could not be deleted", "stream", s.stream.id, "shard", s.num, "err", err)
	}
}
