package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/ringcast/ringcast/client"
)

// publish runs both publishers and both live readers, and compares what the readers saw.
func (r *run) publish(ctx context.Context) error {
	if err := r.createStream(ctx); err != nil {
		return err
	}
	const readers = 2
	subs := make([]*client.Subscription, readers)
	for i := range subs {
		c, err := r.broker.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if subs[i], err = c.Subscribe(ctx, streamName); err != nil {
			return fmt.Errorf("live reader %d: %w", i+1, err)
		}
		defer subs[i].Close()
	}
	progress := r.bar("publishing", r.want.bytes)
	defer progress.end()
	acks := &ackTimes{hist: hdrhistogram.New(1, 600_000_000, 3)}
	began := time.Now()
	var published, delivered time.Duration
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		pubs, pctx := errgroup.WithContext(gctx)
		for _, p := range r.parts() {
			pubs.Go(func() error {
				if err := r.publishPart(pctx, p, acks, progress); err != nil {
					return fmt.Errorf("publisher %c: %w", p.tag, err)
				}
				return nil
			})
		}
		err := pubs.Wait()
		published = time.Since(began)
		return err
	})
	got := make([]*digests, readers)
	var mu sync.Mutex // guards delivered
	for i, sub := range subs {
		g.Go(func() (err error) {
			if got[i], err = r.read(gctx, sub, &bar{}); err != nil {
				return fmt.Errorf("live reader %d: %w", i+1, err)
			}
			mu.Lock()
			defer mu.Unlock()
			delivered = max(delivered, time.Since(began))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	progress.end()
	r.report.Publish = newRate(r.want.total, r.want.bytes, published)
	r.report.Live = newRate(readers*r.want.total, readers*r.want.bytes, delivered)
	acks.report(&r.report)
	r.say("publish: %s, acknowledged on disk after p50 %.2f ms, p99 %.2f ms, max %.2f ms",
		r.report.Publish, r.report.AckP50Millis, r.report.AckP99Millis, r.report.AckMaxMillis)
	for i, d := range got {
		if err := d.equal(r.want); err != nil {
			return fmt.Errorf("live reader %d: %w", i+1, err)
		}
	}
	r.say("live: 2 readers, %s together, the same hashes", r.report.Live)
	for _, p := range r.parts() {
		r.say("  publisher %c  sha256 %s", p.tag, r.want.sum(p.tag))
	}
	return nil
}

// publishPart is one publisher with a connection of its own.
func (r *run) publishPart(ctx context.Context, part part, acks *ackTimes, bar *bar) error {
	c, err := r.broker.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.Publisher(ctx, streamName, client.WithIdempotence(), client.WithBudgetBytes(publishBudget))
	if err != nil {
		return err
	}
	var rec []byte
	var failed failure
	err = eachLine(r.text, part.from, part.to, func(line []byte) error {
		if err := failed.get(); err != nil {
			return err
		}
		rec = tagged(rec, part.tag, line)
		n, sent := int64(len(rec)), time.Now()
		return p.PublishAsync(ctx, client.Record{Value: rec}, func(a client.Ack, err error) {
			if err == nil && !a.HasOffset {
				err = errors.New("an acknowledgement without an offset: the stream has no log")
			}
			if err != nil {
				failed.set(err)
				return
			}
			acks.add(time.Since(sent))
			bar.add(n)
		})
	})
	return errors.Join(err, p.Close(ctx), failed.get())
}

// read takes as many records as were published and hashes them.
func (r *run) read(ctx context.Context, sub *client.Subscription, bar *bar) (*digests, error) {
	d := newDigests()
	for d.total < r.want.total {
		ev, err := sub.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", d.total, r.want.total, err)
		}
		if err := d.add(ev.Payload); err != nil {
			return nil, err
		}
		bar.add(int64(len(ev.Payload)))
	}
	return d, nil
}

// failure keeps the first error of callbacks.
type failure struct {
	mu  sync.Mutex // guards err
	err error
}

func (f *failure) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// ackTimes measures from PublishAsync to the acknowledgement, waiting in the publisher included.
type ackTimes struct {
	mu   sync.Mutex // guards hist
	hist *hdrhistogram.Histogram
}

func (a *ackTimes) add(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.hist.RecordValue(max(1, d.Microseconds())) // ten minutes at most: the step ends before
}

func (a *ackTimes) report(r *Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.AckP50Millis = float64(a.hist.ValueAtQuantile(50)) / 1000
	r.AckP99Millis = float64(a.hist.ValueAtQuantile(99)) / 1000
	r.AckMaxMillis = float64(a.hist.Max()) / 1000
}
