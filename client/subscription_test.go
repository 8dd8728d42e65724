package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringcast/ringcast/wire"
)

func mustSubscribe(t testing.TB, ctx context.Context, c *Client, opts ...SubscribeOption) *Subscription {
	t.Helper()
	s, err := c.Subscribe(ctx, "orders", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take reads n events and checks that their offsets follow each other from first on.
func take(t testing.TB, ctx context.Context, s *Subscription, first uint64, n int) []string {
	t.Helper()
	var got []string
	for i := range n {
		ev, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("after %d events: %v", i, err)
		}
		if !ev.HasOffset || ev.Offset != first+uint64(i) {
			t.Fatalf("event %d has offset %d (%v), want %d", i, ev.Offset, ev.HasOffset, first+uint64(i))
		}
		got = append(got, string(ev.Payload))
	}
	return got
}

// Each start delivers from where it says, and then live.
func TestSubscriptionStartsWhereAsked(t *testing.T) {
	cases := []struct {
		name  string
		opt   SubscribeOption
		first uint64
	}{
		{"latest", FromLatest(), 10}, {"earliest", FromEarliest(), 3}, {"offset", FromOffset(7), 7}, {"tail", FromOffset(10), 10},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.add(numbered("", 0, 10)...)
				b.base = 3
				s := mustSubscribe(t, ctx, c, tc.opt, WithEventTimes(), WithEventPublisher())
				b.add(numbered("", 10, 15)...)
				got := take(t, ctx, s, tc.first, int(15-tc.first))
				if want := numbered("", int(tc.first), 15); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				b.add("x")
				ev, err := s.Next(ctx)
				if err != nil || ev.Publisher != "somebody" || ev.Time.UnixMicro() != 1_700_000_000_000_000 {
					t.Errorf("%+v %v", ev, err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if _, err := s.Next(ctx); !errors.Is(err, ErrClosed) {
					t.Errorf("after close: %v", err)
				}
			})
		})
	}
}

// Whatever interrupts a subscription, at any frame, the reader sees every record once and in order.
func TestResumeHasNoGapAndNoDuplicate(t *testing.T) {
	const records = 200
	faults := map[string]func(f *eventFrame) frameAction{
		"reset":       func(*eventFrame) frameAction { return frameReset },
		"lost":        func(*eventFrame) frameAction { return frameLose },
		"lagged":      func(*eventFrame) frameAction { return frameLag },
		"hole":        func(f *eventFrame) frameAction { f.base++; f.records = f.records[1:]; return frameSend },
		"sent twice":  func(f *eventFrame) frameAction { return frameSend },
		"json events": func(f *eventFrame) frameAction { f.json = true; return frameSend },
	}
	for name, fault := range faults {
		for _, every := range []int{1, 2, 3, 7} {
			if name == "hole" && every == 1 {
				continue // a hole each time at the same place is a gap
			}
			t.Run(fmt.Sprint(name, " every ", every), func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
					frames, holes := 0, map[uint64]bool{}
					b.onFrame = func(sub, frame int, f *eventFrame) frameAction {
						if name == "sent twice" && frame == 0 && f.base > 1 {
							// A broker that begins before the asked place, with a frame half new.
							f.base--
							f.records = append(b.log(0)[f.base:f.base+1:f.base+1], f.records...)
						}
						frames++
						if frames%every != 0 || every == 1 && frames%2 == 0 {
							return frameSend
						}
						if name == "hole" {
							if len(f.records) < 2 || holes[f.base] {
								return frameSend
							}
							holes[f.base] = true
						}
						return fault(f)
					}
					s := mustSubscribe(t, ctx, c, FromEarliest())
					go func() {
						for i := range records {
							b.add(fmt.Sprint(i))
						}
					}()
					if got := take(t, ctx, s, 0, records); !slices.Equal(got, numbered("", 0, records)) {
						t.Errorf("got %q", got)
					}
				})
			})
		}
	}
}

// A reset may overtake the hello of an event stream: the subscription does not wait for a stream
// that has been and gone.
func TestEventStreamLostBeforeItsHelloIsNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add("a")
		b.onFrame = func(sub, _ int, _ *eventFrame) frameAction {
			if sub < 3 {
				return frameResetNow
			}
			return frameSend
		}
		began := time.Now()
		s := mustSubscribe(t, ctx, c, FromEarliest())
		take(t, ctx, s, 0, 1)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// A subscription at latest that has received nothing resumes where it began, not at the new tail.
func TestLatestResumesAtItsStartAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add("old")
		s := mustSubscribe(t, ctx, c)
		b.loseAll()
		b.add("a", "b")
		if got := take(t, ctx, s, 1, 2); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
		if start := b.lastSub[1].Start; start == nil || start.Offset != 1 {
			t.Errorf("resumed at %+v", start)
		}
	})
}

// Offsets that the broker skipped on purpose are no gap.
func TestSkippedOffsetsAreNoGap(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add("0", "1", "epoch", "epoch", "4")
		b.onFrame = func(_, _ int, f *eventFrame) frameAction {
			switch f.base {
			case 0:
				f.records = f.records[:2]
			case 4:
				f.skipped = 2
			}
			return frameSend
		}
		s := mustSubscribe(t, ctx, c, FromEarliest())
		if got := take(t, ctx, s, 0, 2); !slices.Equal(got, []string{"0", "1"}) {
			t.Errorf("got %q", got)
		}
		if got := take(t, ctx, s, 4, 1); !slices.Equal(got, []string{"4"}) {
			t.Errorf("got %q", got)
		}
	})
}

// Being behind the retention edge is told, with the place that can be had; the caller decides. HZ-15
func TestRecordsThatAreGoneAreReportedNotSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add(numbered("", 0, 20)...)
		b.base = 12
		_, err := c.Subscribe(ctx, "orders", FromOffset(11))
		gap, ok := errors.AsType[*GapError](err)
		if !ok || gap.From != 11 || gap.Next != 12 || gap.Reason != "too_old" {
			t.Fatalf("base-1: %v", err)
		}
		s := mustSubscribe(t, ctx, c, FromOffset(12))
		take(t, ctx, s, 12, 8)
		_, err = c.Subscribe(ctx, "orders", FromOffset(21))
		if gap, ok := errors.AsType[*GapError](err); !ok || gap.Next != 20 || gap.Reason != "in_future" {
			t.Fatalf("tail+1: %v", err)
		}
		// The same while resuming: what was trimmed meanwhile ends the subscription.
		b.loseAll()
		b.mu.Lock()
		b.base = 22
		b.mu.Unlock()
		b.add(numbered("", 20, 25)...)
		_, err = s.Next(ctx)
		if gap, ok := errors.AsType[*GapError](err); !ok || gap.From != 20 || gap.Next != 22 {
			t.Errorf("resumed behind the edge: %v", err)
		}
		if _, again := s.Next(ctx); !errors.Is(again, err) {
			t.Errorf("the end is not final: %v", again)
		}
	})
}

// Who asks to go on after a gap is told of it once, in its place.
func TestContinueAfterGapTellsTheGapInPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.add(numbered("", 0, 6)...)
		b.base = 2
		b.onFrame = func(_, _ int, f *eventFrame) frameAction { // records 4 and 5 are never sent
			if f.base == 2 {
				f.records = f.records[:2]
			} else if f.base == 4 {
				f.base, f.records = 6, []string{"6"}
			}
			return frameSend
		}
		b.add("6")
		s := mustSubscribe(t, ctx, c, FromOffset(0), WithContinueAfterGap())
		var seen []string
		for ev, err := range s.Events(ctx) {
			if gap, ok := errors.AsType[*GapError](err); ok {
				seen = append(seen, fmt.Sprintf("gap %d-%d %s", gap.From, gap.Next, gap.Reason))
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, string(ev.Payload))
			if ev.Offset == 6 {
				break
			}
		}
		if want := []string{"gap 0-2 too_old", "2", "3", "gap 4-6 dropped", "6"}; !slices.Equal(seen, want) {
			t.Errorf("got %q, want %q", seen, want)
		}
	})
}

// Without offsets nobody can resume: the interruption is an error, not silence.
func TestInterruptionWithoutOffsetsIsReported(t *testing.T) {
	for _, goOn := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
			b.noLog = true
			var opts []SubscribeOption
			if goOn {
				opts = append(opts, WithContinueAfterGap())
			}
			s := mustSubscribe(t, ctx, c, opts...)
			b.add("a")
			if ev, err := s.Next(ctx); err != nil || ev.HasOffset || string(ev.Payload) != "a" {
				t.Fatalf("%+v %v", ev, err)
			}
			b.loseAll()
			_, err := s.Next(ctx)
			if gap, ok := errors.AsType[*GapError](err); !ok || !errors.Is(err, ErrInterrupted) || gap.Reason != "interrupted" {
				t.Fatalf("got %v", err)
			}
			if !goOn {
				return
			}
			<-time.After(2 * time.Second) // virtual: it has subscribed again
			b.add("c")
			if ev, err := s.Next(ctx); err != nil || string(ev.Payload) != "c" {
				t.Errorf("%+v %v", ev, err)
			}
		})
	}
}

// The ways in which a broker ends a subscription for good.
func TestSubscriptionEndsForItsReason(t *testing.T) {
	for _, tc := range []struct {
		name   string
		action frameAction
		want   error
	}{{"orderly", frameFin, io.EOF}, {"deleted", frameDelete, ErrStreamDeleted}, {"revoked", frameRevoke, wire.ErrRevoked}} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.add("a", "b", "c", "d", "e")
				b.onFrame = func(_, frame int, _ *eventFrame) frameAction {
					if frame == 1 {
						return tc.action
					}
					return frameSend
				}
				s := mustSubscribe(t, ctx, c, FromEarliest())
				take(t, ctx, s, 0, 4)
				for range 2 {
					if _, err := s.Next(ctx); !errors.Is(err, tc.want) {
						t.Errorf("got %v", err)
					}
				}
				for _, err := range s.Events(ctx) {
					if errors.Is(err, io.EOF) {
						t.Error("an orderly end is no turn of the iteration")
					}
				}
				if b.subs != 1 {
					t.Errorf("subscribed %d times", b.subs)
				}
			})
		})
	}
}

// Refused subscribes are retried by class; an unknown stream is the caller's at once, but not for
// a subscription that resumes on a broker which is still opening its streams.
func TestRefusedSubscribeIsRetriedByClass(t *testing.T) {
	for _, tc := range []struct {
		err   *wire.Error
		fatal bool
	}{{wire.ErrUnavailable, false}, {wire.ErrOverloaded, false}, {wire.ErrDraining, false}, {wire.ErrNotLeader, false},
		{wire.ErrForbidden, true}, {wire.ErrNotFound, true}, {wire.ErrLimitExceeded, true}} {
		t.Run(tc.err.Code.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
				b.onSubscribe = func(n int, _ *wire.Subscribe) wire.Message {
					if n < 3 {
						return wire.NewErrorMessage(tc.err, wire.FeatureErrorCodes)
					}
					return nil
				}
				_, err := c.Subscribe(ctx, "orders")
				if tc.fatal && (!errors.Is(err, tc.err) || b.subs != 1) || !tc.fatal && (err != nil || b.subs != 4) {
					t.Errorf("%v after %d attempts", err, b.subs)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		s := mustSubscribe(t, ctx, c)
		b.onSubscribe = func(n int, _ *wire.Subscribe) wire.Message {
			if n < 6 {
				return wire.NewErrorMessage(wire.ErrNotFound, wire.FeatureErrorCodes)
			}
			return nil
		}
		b.loseAll()
		b.add("a")
		take(t, ctx, s, 0, 1)
		b.onSubscribe = func(int, *wire.Subscribe) wire.Message {
			return wire.NewErrorMessage(wire.ErrNotFound, wire.FeatureErrorCodes)
		}
		b.loseAll()
		began := time.Now()
		if _, err := s.Next(ctx); !errors.Is(err, wire.ErrNotFound) || time.Since(began) < notFoundPatience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A reader that does not keep up stops the stream: memory stays at the bound, nothing is lost, and
// delivery goes on when it reads again. HZ-33
func TestSlowReaderStopsTheBrokerAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		c := newFakeClient(t, b, withConnect(b.connect(2000)))
		ctx := bounded(t)
		const records = 400
		for i := range records {
			b.add(fmt.Sprintf("%0100d", i))
		}
		frames := 0
		b.onFrame = func(_, _ int, _ *eventFrame) frameAction { frames++; return frameSend }
		s := mustSubscribe(t, ctx, c, FromEarliest(), WithReceiveBuffer(1000, 4000))
		synctest.Wait()
		s.queue.mu.Lock()
		if s.queue.bytes > 4000+500 {
			t.Errorf("%d bytes queued under a bound of 4000", s.queue.bytes)
		}
		s.queue.mu.Unlock()
		if frames > 30 {
			t.Errorf("broker has written %d of %d frames to a reader that reads nothing", frames, records/4)
		}
		for i, got := range take(t, ctx, s, 0, records) {
			if got != fmt.Sprintf("%0100d", i) {
				t.Fatalf("event %d is %s", i, got)
			}
		}
		_ = c.Close()
		b.close()
	})
}

// A broker without event offsets is not asked for a place: it would silently start at the tail.
func TestOffsetStartNeedsABrokerWithOffsets(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.flags = wire.FlagsOriginal
		_, err := c.Subscribe(ctx, "orders", FromEarliest())
		if _, ok := errors.AsType[*UnsupportedError](err); !ok || b.subs != 0 {
			t.Errorf("%v, %d subscribes sent", err, b.subs)
		}
	})
}

// Next and Events end with the caller's context and can be used again.
func TestNextEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		s := mustSubscribe(t, ctx, c)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for range 2 {
			if _, err := s.Next(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		turns := 0
		for _, err := range s.Events(short) {
			turns++
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		b.add("a")
		if ev, err := s.Next(ctx); err != nil || string(ev.Payload) != "a" || turns != 1 {
			t.Errorf("%v %v, %d turns", ev, err, turns)
		}
	})
}

// Cache calls: values, misses, deletion; reads survive a lost connection, writes are unknown.
func TestCacheCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		k, err := c.Cache("prices", WithNamespace("other"))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Put(ctx, "a", []byte("1"), 1500*time.Microsecond); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := k.Get(ctx, "a"); string(v) != "1" || !ok || err != nil {
			t.Errorf("%q %v %v", v, ok, err)
		}
		b.loseAll()
		if v, ok, err := k.Get(ctx, "a"); string(v) != "1" || !ok || err != nil {
			t.Errorf("after a loss: %q %v %v", v, ok, err)
		}
		if v, ok, err := k.Delete(ctx, "a"); string(v) != "1" || !ok || err != nil {
			t.Errorf("delete: %q %v %v", v, ok, err)
		}
		if v, ok, err := k.Get(ctx, "a"); v != nil || ok || err != nil {
			t.Errorf("after delete: %q %v %v", v, ok, err)
		}
		b.features &^= wire.FeatureCacheDelete
		b.loseAll()
		synctest.Wait()
		if _, _, err := k.Delete(ctx, "a"); err == nil {
			t.Error("cache_delete sent to a broker that does not serve it")
		}
		if n, err := c.StreamShards(ctx, "orders"); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}

// An event stream whose subscribe was given up is not left to fill the connection's window.
func TestUnclaimedEventStreamIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *fakeBroker, c *Client) {
		b.holdSubscribed = make(chan struct{})
		b.add("a")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := c.Subscribe(short, "orders", FromEarliest()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		ss, err := c.session(ctx)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ss.mu.Lock()
		parked := len(ss.events)
		ss.mu.Unlock()
		if parked != 1 {
			t.Fatalf("%d streams parked", parked)
		}
		<-time.After(helloTimeout + time.Second)
		synctest.Wait()
		ss.mu.Lock()
		defer ss.mu.Unlock()
		if len(ss.events) != 0 {
			t.Error("still parked")
		}
		close(b.holdSubscribed)
	})
}
