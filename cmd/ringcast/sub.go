package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/ringcast/ringcast/client"
)

type subCmd struct {
	Stream string `arg:"" help:"Stream to read."`

	From   string        `default:"latest" placeholder:"PLACE" help:"Where to begin: latest, earliest, or an offset."`
	Since  time.Duration `placeholder:"10m" help:"Begin at the first record that is no older, by the broker's clock. Instead of --from."`
	At     string        `placeholder:"TIME" help:"Begin at the first record of this time or later, as 2026-01-31T08:00:00Z or 2026-01-31 08:00 (local). Instead of --from."`
	Count  uint64        `short:"n" placeholder:"N" help:"Stop after N records."`
	Idle   time.Duration `help:"Stop when nothing came for so long."`
	Shard  *uint32       `placeholder:"N" help:"Read one shard. Default: all of them, each in its own order."`
	Raw    bool          `help:"Print the bytes of the records and nothing else, not even line ends."`
	Times  bool          `help:"Print when each record was appended."`
	Source bool          `name:"publisher" help:"Print who published each record."`
	SkipTo bool          `name:"continue" help:"Report records that are gone and go on behind them, instead of stopping."`
}

// subEvent is one record as --json prints it. Payload is for text; bytes that are no UTF-8 come
// in base64.
type subEvent struct {
	Stream        string  `json:"stream"`
	Shard         uint32  `json:"shard"`
	Offset        *uint64 `json:"offset,omitempty"`
	Time          string  `json:"time,omitempty"`
	Publisher     string  `json:"publisher,omitempty"`
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
}

func (s *subCmd) options() ([]client.SubscribeOption, error) {
	var opts []client.SubscribeOption
	since, err := s.since()
	if err != nil {
		return nil, err
	}
	switch s.From {
	case "latest":
		opts = append(opts, client.FromLatest())
	case "earliest":
		opts = append(opts, client.FromEarliest())
	default:
		n, err := strconv.ParseUint(s.From, 10, 64)
		if err != nil {
			return nil, usageError(fmt.Errorf("--from %s: want latest, earliest or an offset", s.From))
		}
		opts = append(opts, client.FromOffset(n))
	}
	if !since.IsZero() {
		opts = append(opts, client.FromTime(since))
	}
	if s.Times {
		opts = append(opts, client.WithEventTimes())
	}
	if s.Source {
		opts = append(opts, client.WithEventPublisher())
	}
	if s.SkipTo {
		opts = append(opts, client.WithContinueAfterGap())
	}
	return opts, nil
}

// since is the time to begin at; zero = not by time.
func (s *subCmd) since() (t time.Time, err error) {
	given := 0
	if s.Since != 0 {
		given++
		if s.Since < 0 {
			return t, usageError(errors.New("--since wants a duration above 0"))
		}
		t = time.Now().Add(-s.Since)
	}
	if s.At != "" {
		given++
		if t, err = parseTime(s.At); err != nil {
			return t, usageError(err)
		}
	}
	if given > 1 || given == 1 && s.From != "latest" {
		return t, usageError(errors.New("give one of --from, --since and --at"))
	}
	return t, nil
}

// timeLayouts are what --at takes; without a zone it is local time.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

func parseTime(text string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--at %s: want a time as 2026-01-31T08:00:00Z or \"2026-01-31 08:00\"", text)
}

// Run prints records until the count is reached, nothing comes, or somebody stops it.
func (s *subCmd) Run(ctx context.Context, env *environment, set *Settings) error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	if s.Raw && env.json {
		return usageError(errors.New("give --raw or --json, not both"))
	}
	c, _, err := set.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	shards, err := s.shards(ctx, c)
	if err != nil {
		return err
	}
	p := &eventPrinter{cmd: s, env: env, out: bufio.NewWriterSize(env.stdout, 64<<10)}
	readers, stop := context.WithCancel(ctx)
	defer stop()
	p.stop = stop
	g, readers := errgroup.WithContext(readers)
	for _, shard := range shards {
		start, cancel := context.WithTimeout(ctx, set.Timeout)
		sub, err := c.Subscribe(start, s.Stream, append(opts, client.WithShard(shard))...)
		cancel()
		if err != nil {
			stop()
			return errors.Join(err, ignoreStop(g.Wait()))
		}
		g.Go(func() error {
			defer sub.Close()
			return s.read(readers, sub, shard, p)
		})
	}
	err = ignoreStop(g.Wait())
	return errors.Join(err, p.out.Flush())
}

// ignoreStop: the end that was asked for, by count or by a signal, is no failure.
func ignoreStop(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, errDone) {
		return nil
	}
	return err
}

// errDone: the count is reached, or nothing came any more.
var errDone = errors.New("done")

func (s *subCmd) shards(ctx context.Context, c *client.Client) ([]uint32, error) {
	if s.Shard != nil {
		return []uint32{*s.Shard}, nil
	}
	n, err := c.StreamShards(ctx, s.Stream)
	if _, old := errors.AsType[*client.UnsupportedError](err); old {
		n, err = 1, nil
	}
	if err != nil {
		return nil, err
	}
	if n > 1 && s.From != "latest" && s.From != "earliest" {
		return nil, usageError(fmt.Errorf("stream %s has %d shards, each with offsets of its own: give --shard with --from %s", s.Stream, n, s.From))
	}
	all := make([]uint32, 0, n)
	for shard := range max(n, 1) {
		all = append(all, shard)
	}
	return all, nil
}

func (s *subCmd) read(ctx context.Context, sub *client.Subscription, shard uint32, p *eventPrinter) error {
	for {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if s.Idle > 0 {
			wait, cancel = context.WithTimeout(ctx, s.Idle)
		}
		ev, err := sub.Next(wait)
		cancel()
		if gap, ok := errors.AsType[*client.GapError](err); ok && s.SkipTo {
			fmt.Fprintln(p.env.stderr, "ringcast:", gap)
			continue
		}
		switch {
		case err == nil:
			if err := p.print(ev, shard, sub.Pending()); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil // idle
		default:
			return err
		}
	}
}

// eventPrinter prints the records of all shards, one at a time.
type eventPrinter struct {
	cmd  *subCmd
	env  *environment
	stop func()

	mu      sync.Mutex // guards what follows
	out     *bufio.Writer
	printed uint64
	line    []byte
}

// print writes one record; more says that others are waiting already, so that the line may stay in
// the buffer.
func (p *eventPrinter) print(ev client.Event, shard uint32, more bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd.Count > 0 && p.printed == p.cmd.Count {
		return errDone
	}
	p.printed++
	line, err := p.format(ev, shard)
	if err != nil {
		return err
	}
	if _, err := p.out.Write(line); err != nil {
		return err
	}
	if p.cmd.Count > 0 && p.printed == p.cmd.Count {
		p.stop()
		return errors.Join(p.out.Flush(), errDone)
	}
	if !more {
		return p.out.Flush()
	}
	return nil
}

func (p *eventPrinter) format(ev client.Event, shard uint32) ([]byte, error) {
	p.line = p.line[:0]
	if p.env.json {
		j := subEvent{Stream: p.cmd.Stream, Shard: shard, Publisher: ev.Publisher}
		if ev.HasOffset {
			j.Offset = &ev.Offset
		}
		if !ev.Time.IsZero() {
			j.Time = ev.Time.UTC().Format(time.RFC3339Nano)
		}
		if utf8.Valid(ev.Payload) {
			text := string(ev.Payload)
			j.Payload = &text
		} else {
			j.PayloadBase64 = ev.Payload
		}
		text, err := json.Marshal(j)
		return append(text, '\n'), err
	}
	if p.cmd.Raw {
		return ev.Payload, nil
	}
	if p.cmd.Times && !ev.Time.IsZero() {
		p.line = ev.Time.UTC().AppendFormat(p.line, "2006-01-02T15:04:05.000000Z")
		p.line = append(p.line, '\t')
	}
	if p.cmd.Source {
		p.line = append(append(p.line, ev.Publisher...), '\t')
	}
	p.line = append(p.line, ev.Payload...)
	return append(p.line, '\n'), nil
}
