package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/internal/daemon"
)

// A publisher that was quiet while the broker was restarted publishes again: nothing but the next
// record wakes its sender, which has no stream and so no window.
func TestQuietPublisherSurvivesARestart(t *testing.T) {
	d, err := daemon.Start(t.Context(), daemon.Options{Bin: bin, Data: filepath.Join(t.TempDir(), "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	const idle = 600 * time.Millisecond
	c, err := d.Client(client.WithIdleTimeout(idle))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.Publisher(t.Context(), "quiet", client.WithIdempotence(), client.WithDeliveryTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	publish := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := p.Publish(ctx, client.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	d.Kill()
	<-time.After(2 * idle) // the client has noticed: its keep-alives are not answered
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish()
}
