package serve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/auth"
	"github.com/ringcast/ringcast/core/cache"
	"github.com/ringcast/ringcast/wire"
)

// Options configure a Server. The zero value of a field means its default; the first three have
// none.
type Options struct {
	Broker   *core.Broker
	Verifier *auth.Verifier
	Cache    *cache.Cache
	// Pool is where frames are read into. Default: the broker's.
	Pool *wire.Pool

	// ListenerPorts are the client ports of the broker; announced when there is more than one.
	ListenerPorts []uint16

	// MaxFrameBytes bounds the payload of a frame, PreauthMaxFrameBytes on a stream that has not
	// authenticated. Defaults 16 MiB and 64 KiB.
	MaxFrameBytes        uint32
	PreauthMaxFrameBytes uint32
	// PreauthStreams is how many unauthenticated streams of a connection are read at a time.
	// Default 16.
	PreauthStreams int
	// AuthTimeout bounds the time to the first authenticated stream of a connection, and to the
	// authentication of each stream. Default 10 s, negative = off.
	AuthTimeout time.Duration

	// PublishWindow is the number of unanswered acked publishes per stream that is granted to
	// clients which ask for pipelining. Default 256, negative = never granted.
	PublishWindow int
	// UnansweredMax is the same bound for streams without a window. Default 1024.
	UnansweredMax int
	// AckWait is how long a queued publish may take before it is answered unacknowledged.
	// Default 2 s.
	AckWait time.Duration
	// QueueWait is the broker's wait for room (core.Options.PublishQueueWait). Default 2 s.
	QueueWait time.Duration
	// AckOnQueue answers publishes once they are queued, to clients that did not ask for
	// ACK_ON_COMMIT. Default: once they are written.
	AckOnQueue bool
	// RecordPublishers keeps the subject of a token with what it publishes.
	RecordPublishers bool

	// MaxSubscriptions is the most of one identity on a connection, MaxSubscriptionsConn of all
	// identities together. Defaults 4096 and four times the former.
	MaxSubscriptions     int
	MaxSubscriptionsConn int
	// OpenTimeout bounds the wait for the client's stream credit when an event stream is opened.
	// Default 1 s.
	OpenTimeout time.Duration
	// StallTimeout resets an event stream whose write stands still for so long. Default off.
	StallTimeout time.Duration

	// DrainLinger is how long connections stay open after the last write of a drain, so that it
	// can arrive. Default 250 ms.
	DrainLinger time.Duration

	// Logger receives lifecycle and degradation messages. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxFrameBytes = cmp.Or(o.MaxFrameBytes, wire.MaxFrameBytes)
	o.PreauthMaxFrameBytes = cmp.Or(o.PreauthMaxFrameBytes, wire.PreauthMaxFrameBytes)
	o.PreauthStreams = cmp.Or(o.PreauthStreams, 16)
	o.AuthTimeout = cmp.Or(o.AuthTimeout, 10*time.Second)
	o.PublishWindow = cmp.Or(o.PublishWindow, 256)
	o.UnansweredMax = cmp.Or(o.UnansweredMax, 1024)
	o.AckWait = cmp.Or(o.AckWait, 2*time.Second)
	o.QueueWait = cmp.Or(o.QueueWait, 2*time.Second)
	o.MaxSubscriptions = cmp.Or(o.MaxSubscriptions, 4096)
	o.MaxSubscriptionsConn = cmp.Or(o.MaxSubscriptionsConn, 4*o.MaxSubscriptions)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, time.Second)
	o.DrainLinger = cmp.Or(o.DrainLinger, 250*time.Millisecond)
	if o.Pool == nil && o.Broker != nil {
		o.Pool = o.Broker.Pool()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns every problem of o at once, joined.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("serve: "+format, args...)) }
	o = o.withDefaults()
	if o.Broker == nil || o.Verifier == nil || o.Cache == nil {
		bad("Broker, Verifier and Cache must be set")
	}
	if o.PreauthMaxFrameBytes > o.MaxFrameBytes {
		bad("PreauthMaxFrameBytes %d is above MaxFrameBytes %d", o.PreauthMaxFrameBytes, o.MaxFrameBytes)
	}
	if o.PublishWindow > windowMax || o.UnansweredMax > windowMax {
		bad("PublishWindow %d and UnansweredMax %d must not pass %d", o.PublishWindow, o.UnansweredMax, windowMax)
	}
	if o.PreauthStreams < 1 || o.UnansweredMax < 1 || o.MaxSubscriptions < 1 {
		bad("PreauthStreams, UnansweredMax and MaxSubscriptions must be at least 1")
	}
	if o.MaxSubscriptionsConn < o.MaxSubscriptions {
		bad("MaxSubscriptionsConn %d is below MaxSubscriptions %d", o.MaxSubscriptionsConn, o.MaxSubscriptions)
	}
	if o.AckWait < 0 || o.QueueWait < 0 || o.OpenTimeout < 0 || o.StallTimeout < 0 || o.DrainLinger < 0 {
		bad("a wait is negative")
	}
	return errors.Join(errs...)
}
