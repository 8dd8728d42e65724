package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
)

// The SDK against a real broker that is killed and restarted on its port again and again while records
// flow: each record of an idempotent publisher is in the log once and in order, a subscriber that was
// there all the time sees exactly that. A publisher learns of the restart from the broker's reset at
// once, a reader that only listens at the latest when its idle timeout is over.
func TestPublisherAndSubscriberSurviveKilledBrokers(t *testing.T) {
	b := devBroker(t)
	addr := b.addr()
	token, err := os.ReadFile(filepath.Join(b.dir, "dev", "token"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func() *client.Client {
		c, err := client.Dial(ctx, addr, client.WithTenant("dev"), client.WithToken(strings.TrimSpace(string(token))),
			client.WithCAFile(filepath.Join(b.dir, "dev", "ca.pem")), client.WithIdleTimeout(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	writer, reader := dial(), dial()
	defer writer.Close()
	defer reader.Close()
	pub, err := writer.Publisher(ctx, "survivor", client.WithIdempotence())
	if err != nil {
		t.Fatal(err)
	}
	sub, err := reader.Subscribe(ctx, "survivor", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	const rounds, perRound = 4, 500
	for round := range rounds {
		for i := range perRound {
			if i == perRound/2 && round > 0 {
				b.kill()
				b.start(addr)
			}
			rec := client.Record{Value: fmt.Append(nil, round*perRound+i)}
			if err := pub.PublishAsync(ctx, rec, func(_ client.Ack, err error) {
				if err != nil {
					t.Errorf("record %s: %v", rec.Value, err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := pub.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("round %d: publishing went on after %s", round, took)
		}
		began = time.Now()
		for i := range perRound {
			ev, err := sub.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint(round*perRound + i); string(ev.Payload) != want {
				t.Fatalf("got %s at offset %d, want %s", ev.Payload, ev.Offset, want)
			}
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("round %d: reading went on after %s", round, took)
		}
	}
	if err := pub.Close(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("publisher: %+v", pub.Stats())
}
