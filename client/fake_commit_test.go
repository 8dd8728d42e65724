package client

import (
	"fmt"

	"github.com/ringcast/ringcast/wire"
)

// fakeState is the keyed state of one shard.
type fakeState struct {
	values   map[string][]byte
	versions map[string]uint64
	asOf     *uint64
}

// callReaction is what the broker does with a conditional publish, a commit or a read of state.
type callReaction struct {
	answer wire.Message // instead of carrying it out
	lose   bool         // carry it out, and lose the connection in place of the answer
}

// route gives a publish in JSON the key that it would have as a binary one.
func (s *fakeStream) route(p *wire.BinaryPublish, key []byte, shard *uint32) {
	p.Key, p.HasKey = key, key != nil
	if shard != nil {
		p.Key, p.HasKey = s.b.keyOf(*shard), true
	}
}

// keyOf is some key of a shard that there is.
func (b *fakeBroker) keyOf(shard uint32) []byte {
	for n := 0; ; n++ {
		if key := fmt.Append(nil, n); wire.ShardOf(key, true, max(b.shards, 1), wire.RoutingModulo) == shard%max(b.shards, 1) {
			return key
		}
	}
}

func (s *fakeStream) conditional(m wire.Message) bool {
	b := s.b
	b.mu.Lock()
	n := b.calls
	b.calls++
	b.mu.Unlock()
	var r callReaction
	if b.onCall != nil {
		r = b.onCall(n, m)
	}
	if r.answer == nil {
		r.answer = b.carryOut(m)
	}
	if r.lose {
		b.loseConn(s.conn)
		return false
	}
	s.answer(r.answer)
	return true
}

func (b *fakeBroker) shardFor(key []byte, hasKey bool, shard *uint32) uint32 {
	if shard != nil {
		return *shard
	}
	return wire.ShardOf(key, hasKey, max(b.shards, 1), wire.RoutingModulo)
}

// carryOut does what m asks for and returns the answer.
func (b *fakeBroker) carryOut(m wire.Message) wire.Message {
	switch m := m.(type) {
	case *wire.PublishIf:
		shard := b.shardFor(m.Key, m.Key != nil, m.Shard)
		if tail := uint64(len(b.log(shard))); tail != m.ExpectedOffset {
			return mismatch(m.RequestID, tail)
		}
		offset, _ := b.apply(&wire.BinaryPublish{Key: b.keyOf(shard), HasKey: true, Section: wire.AppendSection(nil, m.Payloads...)})
		return &wire.PublishOK{RequestID: m.RequestID, Offset: &offset}
	case *wire.Commit:
		shard := b.shardFor(m.EntityKey, true, m.Shard)
		if tail := uint64(len(b.log(shard))); m.ExpectedOffset != nil && tail != *m.ExpectedOffset {
			return mismatch(m.RequestID, tail)
		}
		offset, _ := b.apply(&wire.BinaryPublish{Key: b.keyOf(shard), HasKey: true, Section: wire.AppendSection(nil, m.Event)})
		b.mu.Lock()
		defer b.mu.Unlock()
		st := b.state(shard)
		for _, c := range m.Changes {
			delete(st.values, c.Key)
			if c.Op == wire.ChangePut {
				st.values[c.Key], st.versions[c.Key] = c.Value, offset
			}
		}
		st.asOf = &offset
		return &wire.CommitOK{RequestID: m.RequestID, Offset: offset}
	case *wire.StateGet:
		b.mu.Lock()
		defer b.mu.Unlock()
		st := b.state(b.shardFor(m.EntityKey, true, m.Shard))
		answer := &wire.StateValue{RequestID: m.RequestID, AsOf: st.asOf}
		if v, ok := st.values[m.Key]; ok {
			answer.Value, answer.Version = v, new(st.versions[m.Key])
		}
		return answer
	}
	return &wire.OK{}
}

// state is that of a shard; mu is held.
func (b *fakeBroker) state(shard uint32) *fakeState {
	if b.states == nil {
		b.states = map[uint32]*fakeState{}
	}
	if b.states[shard] == nil {
		b.states[shard] = &fakeState{values: map[string][]byte{}, versions: map[string]uint64{}}
	}
	return b.states[shard]
}

func mismatch(id, tail uint64) *wire.PublishRefused {
	return &wire.PublishRefused{RequestID: id, Message: "mismatch", Reason: wire.RefusedReason{Kind: wire.RefusedOffsetMismatch, Tail: tail}}
}
