package wire

// CachePut writes a cache entry.
type CachePut struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Cache     string  `wire:"cache"`
	Key       string  `wire:"key"`
	Value     []byte  `wire:"value"`
	TTLMS     *uint64 `wire:"ttl_ms,sent"` // nil and 0 = no expiry
	RequestID *uint64 `wire:"request_id,opt"`
}

// CacheOK answers a cache write and several group requests.
type CacheOK struct {
	RequestID uint64 `wire:"request_id"`
}

// CacheGet reads a cache entry.
type CacheGet struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Cache     string  `wire:"cache"`
	Key       string  `wire:"key"`
	RequestID *uint64 `wire:"request_id,opt"`
}

// CacheValue answers a CacheGet or CacheDelete.
type CacheValue struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Cache     string  `wire:"cache"`
	Key       string  `wire:"key"`
	Value     []byte  `wire:"value,nullable"` // nil = no entry
	RequestID *uint64 `wire:"request_id,opt"`
	Version   *uint64 `wire:"version,opt"`
}

// CacheDelete removes a cache entry and returns it.
type CacheDelete struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Cache     string  `wire:"cache"`
	Key       string  `wire:"key"`
	RequestID *uint64 `wire:"request_id,opt"`
}

// CachePutIf writes a cache entry under a condition.
type CachePutIf struct {
	TenantID  string    `wire:"tenant_id"`
	Namespace string    `wire:"namespace"`
	Cache     string    `wire:"cache"`
	Key       string    `wire:"key"`
	Value     []byte    `wire:"value"`
	TTLMS     *uint64   `wire:"ttl_ms,opt"`
	Condition Condition `wire:"condition"`
	RequestID uint64    `wire:"request_id"`
}

// Condition is "absent" or {"version":n}.
type Condition struct {
	Absent  bool
	Version uint64 // unless Absent
}

type conditionObject struct {
	Version uint64 `wire:"version"`
}

// CacheDeleteIf removes a cache entry of a known version.
type CacheDeleteIf struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Cache     string `wire:"cache"`
	Key       string `wire:"key"`
	Version   uint64 `wire:"version"`
	RequestID uint64 `wire:"request_id"`
}

// CacheConditionResult answers the conditional writes; a condition that does not hold is an
// answer, not an error.
type CacheConditionResult struct {
	Applied   bool    `wire:"applied"`
	Version   *uint64 `wire:"version,opt"` // of an applied put, else the current one; nil = no entry
	RequestID uint64  `wire:"request_id"`
}

// CounterAdd adds to a counter.
type CounterAdd struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Cache     string `wire:"cache"`
	Key       string `wire:"key"`
	Delta     int64  `wire:"delta"`
	RequestID uint64 `wire:"request_id"`
}

// CounterGet reads a counter.
type CounterGet struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Cache     string `wire:"cache"`
	Key       string `wire:"key"`
	RequestID uint64 `wire:"request_id"`
}

// CounterValue answers both.
type CounterValue struct {
	Value     *int64 `wire:"value,opt"` // nil = never written
	RequestID uint64 `wire:"request_id"`
}

// CacheWatch asks for the changes of a key or of all keys with a prefix; exactly one of the two
// must be given, which is the receiver's to check.
type CacheWatch struct {
	TenantID       string  `wire:"tenant_id"`
	Namespace      string  `wire:"namespace"`
	Cache          string  `wire:"cache"`
	Key            *string `wire:"key,opt"`
	Prefix         *string `wire:"prefix,opt"` // "" = every key of the shard
	Shard          *uint32 `wire:"shard,opt"`
	FromOffset     *uint64 `wire:"from_offset,opt"`
	Retained       bool    `wire:"retained,opt"` // current values first
	SubscriptionID *uint64 `wire:"subscription_id,opt"`
}

// CacheWatchStarted answers a CacheWatch.
type CacheWatchStarted struct {
	SubscriptionID uint64  `wire:"subscription_id"`
	ResumeOffset   uint64  `wire:"resume_offset"`      // live delivery starts here
	Resnapshot     bool    `wire:"resnapshot,sent"`    // current values come instead of a lost history
	RetainedCount  *uint64 `wire:"retained_count,opt"` // exactly when retained was asked
}

// CacheEvent is one change.
type CacheEvent struct {
	Key             string `wire:"key"`
	Value           []byte `wire:"value,opt"` // nil = deleted or expired
	Offset          uint64 `wire:"offset"`
	ExpiresAtMillis uint64 `wire:"expires_at_millis,sent"` // Unix time, 0 = never
}

// CacheWatchLagged ends a watch that fell behind.
type CacheWatchLagged struct {
	ResumeFrom uint64 `wire:"resume_from"`
}

func (*CachePut) Type() string             { return "cache_put" }
func (*CacheOK) Type() string              { return "cache_ok" }
func (*CacheGet) Type() string             { return "cache_get" }
func (*CacheValue) Type() string           { return "cache_value" }
func (*CacheDelete) Type() string          { return "cache_delete" }
func (*CachePutIf) Type() string           { return "cache_put_if" }
func (*CacheDeleteIf) Type() string        { return "cache_delete_if" }
func (*CacheConditionResult) Type() string { return "cache_condition_result" }
func (*CounterAdd) Type() string           { return "counter_add" }
func (*CounterGet) Type() string           { return "counter_get" }
func (*CounterValue) Type() string         { return "counter_value" }
func (*CacheWatch) Type() string           { return "cache_watch" }
func (*CacheWatchStarted) Type() string    { return "cache_watch_started" }
func (*CacheEvent) Type() string           { return "cache_event" }
func (*CacheWatchLagged) Type() string     { return "cache_watch_lagged" }
