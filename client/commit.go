package client

import (
	"context"
	"fmt"

	"github.com/ringcast/ringcast/wire"
)

// PublishIfOption adjusts a PublishIf, CommitOption a Commit, StateOption a StateGet.
type (
	PublishIfOption interface{ applyPublishIf(*conditionConfig) }
	CommitOption    interface{ applyCommit(*conditionConfig) }
	StateOption     interface{ applyState(*conditionConfig) }
)

// ShardOption may be given wherever a shard can be named.
type ShardOption interface {
	SubscribeOption
	PublisherOption
	PublishIfOption
	CommitOption
	StateOption
}

type conditionConfig struct {
	namespace string
	shard     *uint32
	key       []byte
	expected  *uint64
}

type (
	shardOption    uint32
	keyOption      []byte
	ifOffsetOption uint64
)

func (n shardOption) applySubscribe(c *subscribeConfig) { c.shard = uint32(n) }
func (n shardOption) applyPublisher(c *publisherConfig) { c.shard = new(uint32(n)) }
func (n shardOption) applyPublishIf(c *conditionConfig) { c.shard = new(uint32(n)) }
func (n shardOption) applyCommit(c *conditionConfig)    { c.shard = new(uint32(n)) }
func (n shardOption) applyState(c *conditionConfig)     { c.shard = new(uint32(n)) }

func (k keyOption) applyPublishIf(c *conditionConfig) { c.key = append([]byte{}, k...) }

func (n ifOffsetOption) applyCommit(c *conditionConfig) { c.expected = new(uint64(n)) }

// WithShard names the shard that a subscription reads (default: 0), and for writes the one to use in place
// of that which a key picks: for all records of a publisher, whose keys then route nothing, or for one
// PublishIf, Commit or StateGet. The broker refuses a shard that the stream does not have. A publisher
// sends in JSON then (shard 0 excepted), which is slower.
func WithShard(n uint32) ShardOption { return shardOption(n) }

// WithKey is the routing key of the records of a PublishIf. Default: none, which is shard 0.
func WithKey(key []byte) PublishIfOption { return keyOption(key) }

// IfOffset makes a Commit conditional: it is applied only if its event gets this offset.
func IfOffset(offset uint64) CommitOption { return ifOffsetOption(offset) }

// OffsetMismatchError: a PublishIf or a conditional Commit was not applied, because the next offset of
// the shard is Tail and not Expected.
type OffsetMismatchError struct {
	Stream         string
	Expected, Tail uint64
}

func (e *OffsetMismatchError) Error() string {
	return fmt.Sprintf("client: %s: not written: the next offset is %d, not %d", e.Stream, e.Tail, e.Expected)
}

// PublishIf publishes records as one batch, only if the first one gets the offset expected, and returns
// that. If the shard's next offset is another one it is an *OffsetMismatchError, and nothing was
// written. What was written below the offset that the error names can be read by then (from a ringcast
// broker): look there, and try again with it. The stream needs a log.
//
// When the answer is lost the error is a wire.ErrUnacknowledged. Repeating the call with the same offset
// is safe: of all attempts at one offset at most one is written. A mismatch then leaves open by whom.
func (c *Client) PublishIf(ctx context.Context, stream string, expected uint64, records [][]byte, opts ...PublishIfOption) (offset uint64, err error) {
	cfg := conditionConfig{namespace: c.cfg.namespace}
	for _, o := range opts {
		o.applyPublishIf(&cfg)
	}
	if err := cfg.check(stream, len(cfg.key)); err != nil {
		return 0, err
	}
	size := 0
	for _, r := range records {
		size += len(r) + recordOverhead
	}
	if size > jsonBytesMax {
		return 0, ErrRecordTooLarge
	}
	m, err := c.call(ctx, cfg.need(wire.FeaturePublishConditional), "conditional publishes", &wire.PublishIf{
		TenantID: c.cfg.tenant, Namespace: cfg.namespace, Stream: stream, Payloads: records,
		Key: cfg.key, Shard: cfg.shard, ExpectedOffset: expected, RequestID: 1,
	}, false)
	if err != nil {
		return 0, err
	}
	if ok, is := m.(*wire.PublishOK); is && ok.Offset != nil {
		return *ok.Offset, nil
	}
	return 0, conditionError(m, "publish_if", stream, expected)
}

// Change is one change of the keyed state of a shard, made by a Commit. See Put and Delete.
type Change struct {
	key   string
	value []byte // nil = delete
}

// Put sets key to value. Neither is copied before the Commit that it is given to.
func Put(key string, value []byte) Change {
	if value == nil {
		value = []byte{}
	}
	return Change{key: key, value: value}
}

// Delete removes key.
func Delete(key string) Change { return Change{key: key} }

// Commit writes one event and the changes of keyed state that belong to it as one record: nobody sees
// one without the other, before or after a crash. entity picks the shard as a routing key does; the
// keys of the state are those of that shard, whoever wrote them. Changes are made in order. It returns
// the offset of the event, which is the version of every key that was written.
//
// Every change is made to stream: a commit has one stream and one shard. The stream needs a log. With
// IfOffset it is an *OffsetMismatchError where the event would have had another offset. A Commit
// whose answer is lost fails with wire.ErrUnacknowledged and is not sent again; with IfOffset it may
// be repeated as a PublishIf may.
func (c *Client) Commit(ctx context.Context, stream string, entity, event []byte, changes []Change, opts ...CommitOption) (offset uint64, err error) {
	cfg := conditionConfig{namespace: c.cfg.namespace}
	for _, o := range opts {
		o.applyCommit(&cfg)
	}
	if err := cfg.check(stream, len(entity)); err != nil {
		return 0, err
	}
	size := len(event)
	list := make([]wire.Change, len(changes))
	for i := range changes {
		from, to := &changes[i], &list[i]
		to.Key, to.Value = from.key, from.value
		if from.value == nil {
			to.Op = wire.ChangeDelete
		}
		size += len(from.key) + len(from.value) + changeOverhead
	}
	if size > jsonBytesMax {
		return 0, ErrRecordTooLarge
	}
	m, err := c.call(ctx, cfg.need(wire.FeatureAtomicCommit), "atomic commits", &wire.Commit{
		TenantID: c.cfg.tenant, Namespace: cfg.namespace, Stream: stream, EntityKey: entity, Event: event,
		Changes: list, ExpectedOffset: cfg.expected, Shard: cfg.shard, RequestID: 1,
	}, false)
	if err != nil {
		return 0, err
	}
	if ok, is := m.(*wire.CommitOK); is {
		return ok.Offset, nil
	}
	var expected uint64
	if cfg.expected != nil {
		expected = *cfg.expected
	}
	return 0, conditionError(m, "commit", stream, expected)
}

// State is what a key holds.
type State struct {
	// Value is nil when there is no such key, else it is not.
	Value []byte
	// Version is the offset of the commit that wrote Value.
	Version uint64
	// AsOf is the offset of the last commit that the answer reflects: all up to it and none behind it.
	// HasAsOf is false while the shard holds no commit.
	AsOf    uint64
	HasAsOf bool
}

// StateGet returns what commits have made of a key on the shard that entity picks. A broker that has
// just started may have to read the shard's log first; StateGet waits and asks again for a while. Keys
// whose commit was deleted by the stream's retention are gone.
func (c *Client) StateGet(ctx context.Context, stream string, entity []byte, key string, opts ...StateOption) (State, error) {
	cfg := conditionConfig{namespace: c.cfg.namespace}
	for _, o := range opts {
		o.applyState(&cfg)
	}
	if err := cfg.check(stream, len(entity)); err != nil {
		return State{}, err
	}
	m, err := c.call(ctx, cfg.need(wire.FeatureAtomicCommit), "atomic commits", &wire.StateGet{
		TenantID: c.cfg.tenant, Namespace: cfg.namespace, Stream: stream, EntityKey: entity, Key: key,
		Shard: cfg.shard, RequestID: 1,
	}, true)
	if err != nil {
		return State{}, err
	}
	v, is := m.(*wire.StateValue)
	if !is {
		return State{}, conditionError(m, "state_get", stream, 0)
	}
	s := State{Value: v.Value}
	if v.Version != nil {
		s.Version = *v.Version
	}
	if v.AsOf != nil {
		s.AsOf, s.HasAsOf = *v.AsOf, true
	}
	return s, nil
}

func (c *conditionConfig) check(stream string, keyLen int) error {
	if err := checkName("namespace", c.namespace); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if err := checkName("stream", stream); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if keyLen > keyBytesMax {
		return ErrRecordTooLarge
	}
	return nil
}

// need is the features that the broker must have: a shard that it would not look at could be the wrong
// one, and so could a condition that it does not read.
func (c *conditionConfig) need(f wire.Features) wire.Features {
	if c.shard != nil {
		f |= wire.FeatureExplicitShard
	}
	if c.expected != nil {
		f |= wire.FeaturePublishConditional
	}
	return f
}

// conditionError is what an answer other than success means.
func conditionError(m wire.Message, request, stream string, expected uint64) error {
	switch m := m.(type) {
	case *wire.PublishRefused:
		if m.Reason.Kind == wire.RefusedOffsetMismatch {
			return &OffsetMismatchError{Stream: stream, Expected: expected, Tail: m.Reason.Tail}
		}
		return refusedError(m)
	case *wire.PublishError:
		return m.Err()
	}
	return protocolError("answer to "+request+" is "+m.Type(), nil)
}
