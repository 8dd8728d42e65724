package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/wire"
)

// pubIf is pub --if-offset: all records as one batch, at that offset or not at all.
func (p *pubCmd) pubIf(ctx context.Context, env *environment, s *Settings) error {
	switch {
	case p.Ack != "commit" || p.Idempotent:
		return usageError(errors.New("--if-offset is answered when it is written: leave out --ack and --idempotent"))
	case p.KeySeparator != "" || p.Batch > 0 || p.Linger > 0 || p.InFlight > 0:
		return usageError(errors.New("--if-offset writes one batch: leave out --key-separator, --batch, --linger and --in-flight"))
	}
	var opts []client.PublishIfOption
	if p.Key != nil {
		opts = append(opts, client.WithKey([]byte(*p.Key)))
	}
	if p.Shard != nil {
		opts = append(opts, client.WithShard(*p.Shard))
	}
	var records [][]byte
	var bytes uint64
	in := &input{args: p.Records, files: p.File, whole: p.Whole, stdin: env.stdin}
	err := in.each(ctx, func(rec []byte) error {
		if bytes += uint64(len(rec)); bytes > wire.MaxFrameBytes {
			return fmt.Errorf("%w: --if-offset writes one batch", client.ErrRecordTooLarge)
		}
		records = append(records, append([]byte{}, rec...))
		return nil
	})
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return usageError(errors.New("no record: --if-offset needs at least one"))
	}
	c, _, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	began := time.Now()
	first, err := c.PublishIf(ctx, p.Stream, *p.IfOffset, records, opts...)
	if err != nil {
		return err
	}
	took := time.Since(began)
	last := first + uint64(len(records)) - 1
	ms := float64(took.Microseconds()) / 1000
	return p.print(env, pubSummary{
		Stream: p.Stream, Records: uint64(len(records)), Bytes: bytes, Acked: true, Frames: 1,
		Seconds: took.Seconds(), RecordsPerSecond: rate(float64(len(records)), took), BytesPerSecond: rate(float64(bytes), took),
		AckP50Millis: ms, AckP99Millis: ms, FirstOffset: &first, LastOffset: &last,
	})
}

type commitCmd struct {
	Stream string  `arg:"" help:"Stream to write to."`
	Event  *string `arg:"" optional:"" help:"Event that subscribers see. Without one: all of standard input."`

	Entity   string   `placeholder:"KEY" help:"Picks the shard, as a routing key does."`
	Put      []string `sep:"none" placeholder:"KEY=VALUE" help:"Set a key of the shard's state; may be given several times."`
	Delete   []string `sep:"none" placeholder:"KEY" help:"Remove a key of the state, after what is set; may be given several times."`
	IfOffset *uint64  `placeholder:"N" help:"Only if the event gets this offset."`
	Shard    *uint32  `placeholder:"N" help:"The shard, in place of that which the entity picks."`
}

func (c *commitCmd) changes() (changes []client.Change, err error) {
	for _, p := range c.Put {
		key, value, ok := strings.Cut(p, "=")
		if !ok {
			return nil, usageError(fmt.Errorf("--put %q is not KEY=VALUE", p))
		}
		changes = append(changes, client.Put(key, []byte(value)))
	}
	for _, key := range c.Delete {
		changes = append(changes, client.Delete(key))
	}
	return changes, nil
}

// Run writes one event and the state that belongs to it.
func (c *commitCmd) Run(ctx context.Context, env *environment, s *Settings) error {
	changes, err := c.changes()
	if err != nil {
		return err
	}
	var event []byte
	if c.Event != nil {
		event = []byte(*c.Event)
	} else if event, err = io.ReadAll(io.LimitReader(env.stdin, wire.MaxFrameBytes)); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	var opts []client.CommitOption
	if c.IfOffset != nil {
		opts = append(opts, client.IfOffset(*c.IfOffset))
	}
	if c.Shard != nil {
		opts = append(opts, client.WithShard(*c.Shard))
	}
	conn, _, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	offset, err := conn.Commit(ctx, c.Stream, []byte(c.Entity), event, changes, opts...)
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(map[string]any{"stream": c.Stream, "offset": offset, "changes": len(changes)})
	}
	fmt.Fprintf(env.stderr, "committed at offset %d with %s\n", offset, plural(len(changes), "change", "changes"))
	return nil
}

type stateCmd struct {
	Get stateGet `cmd:"" help:"Print what commits have made of a key."`
}

type stateGet struct {
	Stream string  `arg:"" help:"Stream."`
	Key    string  `arg:"" help:"Key."`
	Entity string  `placeholder:"KEY" help:"Picks the shard, as in the commit."`
	Shard  *uint32 `placeholder:"N" help:"The shard, in place of that which the entity picks."`
	Raw    bool    `help:"Print the bytes without a line end."`
}

// stateEntry is a key as --json prints it.
type stateEntry struct {
	Stream      string  `json:"stream"`
	Key         string  `json:"key"`
	Found       bool    `json:"found"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
	Version     *uint64 `json:"version,omitempty"`
	AsOf        *uint64 `json:"as_of,omitempty"`
}

func (g *stateGet) Run(ctx context.Context, env *environment, s *Settings) error {
	var opts []client.StateOption
	if g.Shard != nil {
		opts = append(opts, client.WithShard(*g.Shard))
	}
	conn, _, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	v, err := conn.StateGet(ctx, g.Stream, []byte(g.Entity), g.Key, opts...)
	if err != nil {
		return err
	}
	if env.json {
		e := stateEntry{Stream: g.Stream, Key: g.Key, Found: v.Value != nil}
		if v.HasAsOf {
			e.AsOf = &v.AsOf
		}
		if e.Found {
			e.Version = &v.Version
			if utf8.Valid(v.Value) {
				e.Value = new(string(v.Value))
			} else {
				e.ValueBase64 = v.Value
			}
		}
		return env.emit(e)
	}
	if v.Value == nil {
		return fmt.Errorf("the state of %s has no key %s", g.Stream, g.Key)
	}
	if !g.Raw {
		v.Value = append(v.Value, '\n')
	}
	_, err = env.stdout.Write(v.Value)
	return err
}
