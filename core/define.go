package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcast/ringcast/fanout"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Stream returns the handle of a stream, which is made with the defaults if it does not exist and
// the broker may (AUTO_CREATE); else a *wire.Error not_found.
func (b *Broker) Stream(tenant, namespace, stream string) (*Stream, error) {
	var scratch [3*nameMax + 2]byte
	if st, ok := b.streams.get(appendKey(scratch[:0], tenant, namespace, stream)); ok {
		return st, nil
	}
	return b.missingStream(tenant, namespace, stream)
}

// StreamBytes is Stream for names that lie in a frame: it allocates nothing for a stream that
// exists.
func (b *Broker) StreamBytes(tenant, namespace, stream []byte) (*Stream, error) {
	var scratch [3*nameMax + 2]byte
	if st, ok := b.streams.get(appendKey(scratch[:0], tenant, namespace, stream)); ok {
		return st, nil
	}
	return b.missingStream(string(tenant), string(namespace), string(stream))
}

// GetStream describes a stream that exists. It never makes one.
func (b *Broker) GetStream(tenant, namespace, stream string) (info StreamInfo, ok bool) {
	st, ok := b.streams.get(appendKey(nil, tenant, namespace, stream))
	if !ok {
		return info, false
	}
	return st.Info(), true
}

func (b *Broker) missingStream(tenant, namespace, stream string) (*Stream, error) {
	if !b.opts.AutoCreate {
		return nil, wire.NewError(wire.CodeNotFound, "stream not found: %s/%s/%s", tenant, namespace, stream)
	}
	st, _, err := b.createStream(StreamDef{Tenant: tenant, Namespace: namespace, Stream: stream, Durable: b.Durable()}, true)
	return st, err
}

// CreateStream makes a stream or changes what may change of one that exists: its retention. created
// is false for one that existed. Another number of shards, durability, routing or sync mode is an
// ErrConflict.
func (b *Broker) CreateStream(def StreamDef) (info StreamInfo, created bool, err error) {
	st, created, err := b.createStream(def, false)
	if err != nil {
		return StreamInfo{}, false, err
	}
	return st.Info(), created, nil
}

// ErrConflict says that a definition differs from the existing one in what cannot change.
var ErrConflict = errors.New("core: exists with another definition")

// createStream makes a stream. keep leaves one that exists as it is.
func (b *Broker) createStream(def StreamDef, keep bool) (*Stream, bool, error) {
	if _, _, err := def.normalise(&b.opts); err != nil {
		return nil, false, err
	}
	if err := b.lockDefinitions(); err != nil {
		return nil, false, err
	}
	defer b.defMu.Unlock()
	key := appendKey(nil, def.Tenant, def.Namespace, def.Stream)
	if st, ok := b.streams.get(key); ok {
		if keep {
			return st, false, nil
		}
		return st, false, b.changeStream(st, key, def)
	}
	var row streamRow
	err := b.cat.putNew(bucketStreams, key, func(id uint64) any {
		row = streamRow{StreamDef: def, ID: id, Created: b.opts.Now().UTC()}
		return row
	})
	if err != nil {
		return nil, false, createError(err)
	}
	st, err := b.newStream(row)
	if err == nil {
		if err = b.openShards(context.Background(), st, newOpenProgress(nil)); err == nil {
			err = b.attach(st)
		}
		if err != nil {
			err = errors.Join(err, st.closeLogs())
		}
	}
	if err != nil {
		err = errors.Join(err, b.cat.remove(bucketStreams, key))
		if def.Durable {
			err = errors.Join(err, b.opts.FS.RemoveAll(b.streamDir(row.ID)))
		}
		return nil, false, createError(err)
	}
	b.streams.put(key, st)
	b.opts.Logger.Info("stream created", "tenant", def.Tenant, "namespace", def.Namespace, "stream", def.Stream,
		"id", st.id, "shards", def.Shards, "durable", def.Durable, "fsync", def.Fsync, "ack", st.ackPromise())
	return st, true, nil
}

// lockDefinitions takes defMu for a change of definitions, unless the broker stops.
func (b *Broker) lockDefinitions() error {
	b.defMu.Lock()
	if b.draining.Load() {
		b.defMu.Unlock()
		return errDraining
	}
	return nil
}

// createError maps a failure to make a log: nothing was created, so it may be tried again (LOG-12).
func createError(err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, ring.ErrNoSpace) {
		return errDiskFull.WithCause(err)
	}
	return wire.NewError(wire.CodeStorage, "the stream's log could not be made").WithRetry(wire.RetryNow).WithCause(err)
}

// changeStream applies what may change. defMu is held.
func (b *Broker) changeStream(st *Stream, key []byte, def StreamDef) error {
	old := st.def.Load()
	if !old.sameShape(&def) {
		return fmt.Errorf("%w: stream %s/%s/%s has shards %d, durable %t, routing %s",
			ErrConflict, def.Tenant, def.Namespace, def.Stream, old.Shards, old.Durable, old.Routing)
	}
	if old.Fsync != def.Fsync {
		return fmt.Errorf("%w: stream %s/%s/%s has fsync %s, and this version cannot change it in place",
			ErrConflict, def.Tenant, def.Namespace, def.Stream, old.Fsync)
	}
	row := streamRow{StreamDef: def, ID: st.id, Created: st.created}
	if err := b.cat.put(bucketStreams, key, row); err != nil {
		return createError(err)
	}
	st.def.Store(&def)
	if def.Durable {
		return st.applyRetention()
	}
	return nil
}

// attach gives the shards to their executors.
func (b *Broker) attach(st *Stream) error {
	for _, s := range st.shards {
		if err := s.exec.call(s.attach); err != nil {
			return err
		}
	}
	return nil
}

// DeleteStream removes a stream, ends its subscriptions with stream_deleted after what is queued
// for them, and deletes its files. From its first moment on the name is free. ctx bounds the wait
// for the disk; when it ends first the rest happens without the caller, at the latest at the next
// start.
func (b *Broker) DeleteStream(ctx context.Context, tenant, namespace, stream string) error {
	st, err := b.beginRemoval(tenant, namespace, stream)
	if err != nil {
		return err
	}
	select {
	case <-st.removed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("core: delete stream %d: disk work is in flight: %w", st.id, ctx.Err())
	}
}

// beginRemoval takes a stream out of the catalogue and tells its executors to let go of it. The
// last one that has hands it to a file worker, for finishRemoval.
func (b *Broker) beginRemoval(tenant, namespace, stream string) (*Stream, error) {
	if err := b.lockDefinitions(); err != nil {
		return nil, err
	}
	defer b.defMu.Unlock()
	key := appendKey(nil, tenant, namespace, stream)
	st, ok := b.streams.get(key)
	if !ok {
		return nil, wire.NewError(wire.CodeNotFound, "stream not found: %s/%s/%s", tenant, namespace, stream)
	}
	if err := b.cat.remove(bucketStreams, key); err != nil {
		return nil, createError(err)
	}
	st.deleted.Store(true)
	b.streams.remove(key)
	st.leaving.Store(int32(len(st.shards)))
	for _, s := range st.shards {
		// It cannot fail: Close stops the executors with defMu held.
		if err := s.exec.call(func() { s.exec.leave(s) }); err != nil {
			return nil, err
		}
	}
	b.opts.Logger.Info("stream deleted", "tenant", tenant, "namespace", namespace, "stream", stream, "id", st.id)
	return st, nil
}

// finishRemoval ends the readers of a stream that no executor knows any more, and deletes its files.
// What goes wrong loses nothing: the next start sweeps up.
func (b *Broker) finishRemoval(st *Stream) {
	for _, sub := range b.subs.list() {
		if sub.shard.stream == st {
			sub.stop(fanout.EndDeleted)
		}
	}
	err := st.closeLogs()
	if st.Durable() {
		err = errors.Join(err, b.opts.FS.RemoveAll(b.streamDir(st.id)))
	}
	if err != nil {
		b.opts.Logger.Warn("files of a deleted stream remain until the next start", "id", st.id, "err", err)
	}
	close(st.removed)
}

// ListStreams describes the streams of a tenant and namespace, "" for all, in order of their names.
func (b *Broker) ListStreams(tenant, namespace string) []StreamInfo {
	var infos []StreamInfo
	b.streams.all(func(st *Stream) {
		def := st.def.Load()
		if (tenant == "" || def.Tenant == tenant) && (namespace == "" || def.Namespace == namespace) {
			infos = append(infos, st.Info())
		}
	})
	slices.SortFunc(infos, func(a, b StreamInfo) int {
		return compareNames(a.Tenant, b.Tenant, a.Namespace, b.Namespace, a.Stream, b.Stream)
	})
	return infos
}
