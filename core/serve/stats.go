package serve

import "sync/atomic"

// fault is one kind of bad input (wire.md 2.4, 3.1, 5.1, 6.2). Each has a counter.
type fault uint8

const (
	faultMagic           fault = iota // not a frame
	faultVersion                      // unknown frame version
	faultTooLarge                     // length over the limit
	faultTooLargePreauth              // length over the limit before authentication
	faultTruncated                    // stream finished inside a frame
	faultFlags                        // unknown or misplaced flag bits
	faultIdempotent                   // idempotent publish without the acked bit
	faultJSON                         // not JSON, wrong types, invalid base64
	faultType                         // unknown message type
	faultBrokerOnly                   // a type that only a broker sends
	faultSecondAuth                   // auth on a stream that has authenticated
	faultBeforeAuth                   // request before auth
	faultPublishPrefix                // acked publish without a readable request id
	faultPublishAcked                 // other fault of an acked publish batch
	faultPublishUnacked               // any fault of an unacked publish batch
	faultRequestID                    // acked publish without a request id
	faultOneWay                       // a frame that a publish-only stream may not carry
	faultCount
)

var faultNames = [faultCount]string{
	"magic", "version", "too_large", "too_large_preauth", "truncated", "flags", "idempotent_unacked",
	"json", "type", "broker_only", "second_auth", "before_auth", "publish_prefix", "publish_acked",
	"publish_unacked", "request_id", "one_way",
}

func (f fault) String() string { return faultNames[f] }

// ending is why a subscription ended.
type ending uint8

const (
	endingReader   ending = iota // the client stopped the stream or the connection ended
	endingLagged                 // its queue overflowed and it asked to be told
	endingDeleted                // its stream was deleted
	endingRevoked                // its credential was revoked
	endingTrimmed                // retention deleted what it was to get
	endingInternal               // reset: history could not be delivered
	endingStalled                // reset: its write stood still
	endingStopped                // the broker stops
	endingCount
)

var endingNames = [endingCount]string{"reader", "lagged", "deleted", "revoked", "trimmed", "internal", "stalled", "stopped"}

func (e ending) String() string { return endingNames[e] }

// counters is what a Server counts. Written by session and subscription goroutines; none of them
// is touched per record.
type counters struct {
	connsOpen, streamsOpen, subsOpen   atomic.Int64
	conns, streams, subs               atomic.Uint64
	authOK, authFailed, authDraining   atomic.Uint64
	authTimeouts, streamAuthTimeouts   atomic.Uint64
	forbidden, unsupported             atomic.Uint64
	jsonPublishes                      atomic.Uint64
	unackedLost                        atomic.Uint64
	ackTimeouts, lateOutcomes, overdue atomic.Uint64
	subsRefused                        atomic.Uint64
	faults                             [faultCount]atomic.Uint64
	endings                            [endingCount]atomic.Uint64
}

// Stats is a snapshot of a Server's counters.
type Stats struct {
	ConnsOpen, StreamsOpen, SubscriptionsOpen int64 // now
	Conns, Streams, Subscriptions             uint64

	AuthOK, AuthFailed, AuthDraining uint64
	// AuthTimeouts counts connections closed because nobody authenticated, StreamAuthTimeouts
	// streams given up for that reason.
	AuthTimeouts, StreamAuthTimeouts uint64

	Forbidden   uint64 // requests refused for a missing permission or another tenant
	Unsupported uint64 // requests of a kind that this broker does not serve
	// JSONPublishes counts publishes in JSON; the broker counts publishes of every form.
	JSONPublishes uint64
	// UnackedLost counts unacked publishes that were dropped before the broker's queue: unknown
	// stream, bad shard, draining.
	UnackedLost uint64
	// AckTimeouts counts publishes answered unacknowledged, LateOutcomes their outcomes that came
	// afterwards, Overdue streams ended because their answers stood still.
	AckTimeouts, LateOutcomes, Overdue uint64
	SubscriptionsRefused               uint64 // by a limit

	// BadInput counts by kind of fault, SubscriptionEnds by cause. The keys are closed sets.
	BadInput         map[string]uint64
	SubscriptionEnds map[string]uint64
}

// Stats returns the counters of a moment.
func (s *Server) Stats() Stats {
	c := &s.count
	st := Stats{
		ConnsOpen: c.connsOpen.Load(), StreamsOpen: c.streamsOpen.Load(), SubscriptionsOpen: c.subsOpen.Load(),
		Conns: c.conns.Load(), Streams: c.streams.Load(), Subscriptions: c.subs.Load(),
		AuthOK: c.authOK.Load(), AuthFailed: c.authFailed.Load(), AuthDraining: c.authDraining.Load(),
		AuthTimeouts: c.authTimeouts.Load(), StreamAuthTimeouts: c.streamAuthTimeouts.Load(),
		Forbidden: c.forbidden.Load(), Unsupported: c.unsupported.Load(),
		JSONPublishes: c.jsonPublishes.Load(),
		UnackedLost:   c.unackedLost.Load(),
		AckTimeouts:   c.ackTimeouts.Load(), LateOutcomes: c.lateOutcomes.Load(), Overdue: c.overdue.Load(),
		SubscriptionsRefused: c.subsRefused.Load(),
		BadInput:             make(map[string]uint64, faultCount),
		SubscriptionEnds:     make(map[string]uint64, endingCount),
	}
	for f := range faultCount {
		st.BadInput[f.String()] = c.faults[f].Load()
	}
	for e := range endingCount {
		st.SubscriptionEnds[e.String()] = c.endings[e].Load()
	}
	return st
}

func (c *counters) fault(f fault) { c.faults[f].Add(1) }
