package admin

import (
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/core/cache"
	"github.com/ringcast/ringcast/netio"
)

// Sessions is a snapshot of the session layer, as the command hands it over.
type Sessions struct {
	ConnsOpen         int64 `json:"connections"`
	StreamsOpen       int64 `json:"streams"`
	SubscriptionsOpen int64 `json:"subscriptions"`

	Conns, Streams, Subscriptions      uint64 `json:"-"`
	AuthOK, AuthFailed, AuthDraining   uint64 `json:"-"`
	AuthTimeouts, StreamAuthTimeouts   uint64 `json:"-"`
	Forbidden, Unsupported             uint64 `json:"-"`
	JSONPublishes, UnackedLost         uint64 `json:"-"`
	AckTimeouts, LateOutcomes, Overdue uint64 `json:"-"`
	SubscriptionsRefused               uint64 `json:"-"`

	// BadInput counts by kind of fault, SubscriptionEnds by cause; the keys are closed sets.
	BadInput         map[string]uint64 `json:"bad_input"`
	SubscriptionEnds map[string]uint64 `json:"subscription_ends"`
}

// statusBody is what /v1/status answers.
type statusBody struct {
	Version       string  `json:"version"`
	State         string  `json:"state"`
	UptimeSeconds float64 `json:"uptime_seconds"`
	Host          string  `json:"host"`
	PID           int     `json:"pid"`
	GOMAXPROCS    int     `json:"gomaxprocs"`

	// Engine is the storage engine that runs, "" without storage; EngineReason says why it is not
	// the preferred one, "" when it is.
	Engine       string   `json:"engine"`
	EngineReason string   `json:"engine_reason"`
	Notes        []string `json:"notes"`

	Streams       []core.StreamInfo `json:"streams"`
	Caches        []core.CacheInfo  `json:"caches"`
	FailedShards  int               `json:"failed_shards"`
	Subscriptions int               `json:"subscriptions"`
	InflightBytes int64             `json:"inflight_bytes"`
	Outstanding   int64             `json:"outstanding_publishes"`

	Totals   totals          `json:"totals"`
	Rates    perSecond       `json:"rates_per_second"`
	Tenants  []tenantBody    `json:"tenants"`
	Cores    []executorBody  `json:"core_shards"`
	Sessions Sessions        `json:"sessions"`
	Sockets  []listenerBody  `json:"listeners"`
	Cache    cacheStatus     `json:"cache"`
	Memory   map[string]any  `json:"memory"`
	Lagging  []laggingReader `json:"lagging_subscriptions"`
}

type tenantBody struct {
	Tenant           string `json:"tenant"`
	PublishedRecords uint64 `json:"published_records"`
	PublishedBytes   uint64 `json:"published_bytes"`
	Dropped          uint64 `json:"publishes_dropped"`
	Refused          uint64 `json:"publishes_refused"`
	Throttled        uint64 `json:"publishes_throttled"`
	Lost             uint64 `json:"publishes_lost"`
}

type executorBody struct {
	Shard    int    `json:"shard"`
	Pinned   bool   `json:"pinned"`
	Queued   int64  `json:"queued"`
	Finished uint64 `json:"finished"`
	Failed   uint64 `json:"failed"`
	Refused  uint64 `json:"refused"`
	Syncs    uint64 `json:"syncs"`
}

type listenerBody struct {
	Port          uint16 `json:"port"`
	Conns         int    `json:"connections"`
	Handshakes    int    `json:"handshakes"`
	Accepted      uint64 `json:"accepted"`
	Refused       uint64 `json:"refused"`
	ReceiveBuffer int    `json:"receive_buffer_bytes"`
	SendBuffer    int    `json:"send_buffer_bytes"`
	ReceiveDrops  uint64 `json:"receive_drops"`
	SendErrors    uint64 `json:"send_errors"`
	GSO           bool   `json:"gso"`
}

func listenerBodyOf(l netio.Stats) listenerBody {
	return listenerBody{
		Port: l.Port, Conns: l.Conns, Handshakes: l.Handshakes, Accepted: l.Accepted,
		Refused:       l.RefusedConns + l.RefusedPerIP + l.RefusedHandshakes + l.RefusedStopped,
		ReceiveBuffer: l.Socket.ReceiveBuffer, SendBuffer: l.Socket.SendBuffer,
		ReceiveDrops: l.Socket.ReceiveDrops, SendErrors: l.Socket.SendErrors, GSO: l.Socket.GSO,
	}
}

type cacheStatus struct {
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
	Expired uint64 `json:"expired"`
	Evicted uint64 `json:"evicted"`
}

func cacheStatusOf(c cache.Stats) cacheStatus {
	return cacheStatus{c.Entries, c.Bytes, c.Hits, c.Misses, c.Expired, c.Evicted}
}

// laggingReader is a subscription that is behind its stream.
type laggingReader struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
	Stream    string `json:"stream"`
	Shard     uint32 `json:"shard"`
	ID        uint64 `json:"id"`
	Lag       uint64 `json:"lag"`
	Queued    int    `json:"queued"`
	Capacity  int    `json:"capacity"`
	Dropped   uint64 `json:"dropped_batches"`
	Live      bool   `json:"live"`
}

// laggingMax bounds the list of lagging subscriptions: the worst come first.
const laggingMax = 50

// status shows the whole broker.
func (s *Server) status(w http.ResponseWriter, _ *http.Request, c *caller) error {
	if err := c.mayViewBroker(); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.snapshot(c.Services))
	return nil
}

// config shows the settings in force, secrets masked by whoever gave them.
func (s *Server) config(w http.ResponseWriter, _ *http.Request, c *caller) error {
	if err := c.mayViewBroker(); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.o.Config)
	return nil
}

func (s *Server) snapshot(v *Services) *statusBody {
	st := v.Broker.Status()
	host, _ := os.Hostname()
	b := &statusBody{
		Version: s.o.Version, State: phase(s.phase.Load()).String(), UptimeSeconds: time.Since(s.began).Seconds(),
		Host: host, PID: os.Getpid(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Engine: st.Engine, EngineReason: st.EngineReason, Notes: append([]string{}, s.o.Notes...),
		Caches:  append([]core.CacheInfo{}, v.Broker.ListCaches("", "")...),
		Streams: []core.StreamInfo{}, Tenants: []tenantBody{}, Cores: []executorBody{}, Sockets: []listenerBody{},
		FailedShards: st.FailedShards, Subscriptions: st.Subscriptions,
		InflightBytes: st.InflightBytes, Outstanding: st.Outstanding,
		Sessions: v.Sessions(), Cache: cacheStatusOf(v.Cache.Stats()),
		Memory: map[string]any{
			"frames_in_use": st.Pool.InUse, "frame_bytes_in_use": st.Pool.InUseBytes, "frame_bytes_pooled": st.Pool.PooledBytes,
			"ring_bytes": st.RetainedBytes, "state_bytes": st.StateBytes,
		},
	}
	for _, info := range v.Broker.ListStreams("", "") {
		b.Streams = append(b.Streams, s.describe(info))
	}
	for _, l := range v.Listeners() {
		b.Sockets = append(b.Sockets, listenerBodyOf(l))
	}
	for _, t := range st.Tenants {
		b.Tenants = append(b.Tenants, tenantBody{
			t.Tenant, t.PublishedRecords, t.PublishedBytes, t.DroppedQueueFull, t.RefusedQueueFull,
			t.ThrottledDropped + t.ThrottledRefused + t.ThrottledWaited, t.Lost,
		})
		b.Totals.PublishedRecords += t.PublishedRecords
		b.Totals.PublishedBytes += t.PublishedBytes
		b.Totals.DroppedPublishes += t.DroppedQueueFull + t.ThrottledDropped + t.Lost
	}
	for _, e := range st.Executors {
		b.Cores = append(b.Cores, executorBody{e.Shard, e.Sched.Pinned, e.Queued, e.Finished, e.Failed, e.Refused, e.Ring.Syncs})
	}
	b.Totals.DeliveredRecords, b.Totals.DeliveredBytes = st.DeliveredRecords, st.DeliveredBytes
	b.Totals.DroppedBatches = st.DroppedBatches
	b.Rates = s.rates.of(b.Totals, time.Now())
	b.Lagging = lagging(v.Broker.Subscriptions())
	return b
}

// totals are sums since the start.
type totals struct {
	PublishedRecords uint64 `json:"published_records"`
	PublishedBytes   uint64 `json:"published_bytes"`
	DeliveredRecords uint64 `json:"delivered_records"`
	DeliveredBytes   uint64 `json:"delivered_bytes"`
	// DroppedPublishes were unacknowledged and found no room, quota or stream, or failed; DroppedBatches are
	// deliveries that a subscriber's queue had no room for.
	DroppedPublishes uint64 `json:"dropped_publishes"`
	DroppedBatches   uint64 `json:"dropped_batches"`
}

// perSecond are differences of totals over the time between two looks.
type perSecond struct {
	PublishedRecords float64 `json:"published_records"`
	PublishedBytes   float64 `json:"published_bytes"`
	DeliveredRecords float64 `json:"delivered_records"`
	DeliveredBytes   float64 `json:"delivered_bytes"`
	DroppedBatches   float64 `json:"dropped_batches"`
	// OverSeconds is that time; 0 = this is the first look, there are no rates yet.
	OverSeconds float64 `json:"over_seconds"`
}

// rates keeps an earlier sample. Looks that follow each other closely share it, so that two people
// watching do not shorten each other's window.
type rates struct {
	mu     sync.Mutex // guards what follows
	at     time.Time
	sample totals
	last   perSecond
}

// rateWindow is how old a sample becomes before it is replaced.
const rateWindow = 2 * time.Second

func (r *rates) of(now totals, at time.Time) perSecond {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() {
		r.at, r.sample = at, now
		return perSecond{}
	}
	age := at.Sub(r.at).Seconds()
	if age < rateWindow.Seconds() && r.last.OverSeconds > 0 || age < 0.2 {
		return r.last
	}
	per := func(a, b uint64) float64 { return float64(a-b) / age }
	r.last = perSecond{
		per(now.PublishedRecords, r.sample.PublishedRecords), per(now.PublishedBytes, r.sample.PublishedBytes),
		per(now.DeliveredRecords, r.sample.DeliveredRecords), per(now.DeliveredBytes, r.sample.DeliveredBytes),
		per(now.DroppedBatches, r.sample.DroppedBatches), age,
	}
	r.at, r.sample = at, now
	return r.last
}
