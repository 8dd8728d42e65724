package wire

// ShardInspect asks what a broker knows of one shard.
type ShardInspect struct {
	TenantID  string       `wire:"tenant_id"`
	Namespace string       `wire:"namespace"`
	Name      string       `wire:"name"`
	Kind      ResourceKind `wire:"kind"`
	Shard     uint32       `wire:"shard"`
	RequestID uint64       `wire:"request_id"`
}

// ShardInspectInfo answers a ShardInspect.
type ShardInspectInfo struct {
	View      ShardView `wire:"view"`
	RequestID uint64    `wire:"request_id"`
}

// ShardView is one broker's view of one shard. Its names are text, because a newer broker may
// have more of them and diagnosis must still show them.
type ShardView struct {
	NodeID             string           `wire:"node_id"` // empty outside a cluster
	Shards             uint32           `wire:"shards"`
	Role               string           `wire:"role"`  // leader, follower, none
	Phase              string           `wire:"phase"` // unassigned, opening, fencing, active, draining, closed, failed
	Serving            bool             `wire:"serving"`
	Reason             string           `wire:"reason,opt"`
	Detail             string           `wire:"detail,opt"`
	Generation         *uint64          `wire:"generation,opt"`
	Assignment         *ShardAssignment `wire:"assignment,opt"`
	Fence              *ShardFence      `wire:"fence,opt"`
	Lease              *ShardLease      `wire:"lease,opt"`
	Tail               *uint64          `wire:"tail,opt"`
	Committed          *uint64          `wire:"committed,opt"`
	AcceptedGeneration *uint64          `wire:"accepted_generation,opt"`
	Replicas           []ShardReplica   `wire:"replicas,opt"`
}

// ShardAssignment says who should serve the shard.
type ShardAssignment struct {
	Generation uint64   `wire:"generation"`
	Leader     string   `wire:"leader"`
	Replicas   []string `wire:"replicas"`
	Draining   *bool    `wire:"draining,opt"`
	Successor  string   `wire:"successor,opt"`
}

// ShardFence is the progress of a change of leader.
type ShardFence struct {
	Took      []string `wire:"took"`
	Pending   []string `wire:"pending"`
	Attempts  uint32   `wire:"attempts"`
	RetryInMS *uint64  `wire:"retry_in_ms,opt"`
}

// ShardLease is the leader's lease.
type ShardLease struct {
	Held        bool   `wire:"held"`
	RemainingMS uint64 `wire:"remaining_ms"`
}

// ShardReplica is one replica as its leader sees it.
type ShardReplica struct {
	NodeID     string  `wire:"node_id"`
	Role       string  `wire:"role"`
	NextOffset *uint64 `wire:"next_offset,opt"`
	Lag        *uint64 `wire:"lag,opt"`
	Fence      *bool   `wire:"fence,opt"`
	State      string  `wire:"state"`
	Halted     RawJSON `wire:"halted,opt"` // its type is not documented
}

// SubscriptionsList asks for the subscriptions of a broker, page by page.
type SubscriptionsList struct {
	Filter    *SubscriptionsFilter `wire:"filter,opt"`
	Limit     *uint32              `wire:"limit,opt"` // nil = 100
	Cursor    *SubscriptionsCursor `wire:"cursor,opt"`
	RequestID uint64               `wire:"request_id"`
}

// SubscriptionsFilter keeps the subscriptions that match every member given.
type SubscriptionsFilter struct {
	TenantID  *string `wire:"tenant_id,opt"`
	Namespace *string `wire:"namespace,opt"`
	Stream    *string `wire:"stream,opt"`
	Shard     *uint32 `wire:"shard,opt"`
	Principal *string `wire:"principal,opt"`
	Dropping  *bool   `wire:"dropping,opt"`
}

// SubscriptionsCursor is the place where the next page begins.
type SubscriptionsCursor struct {
	TenantID     string `wire:"tenant_id"`
	Namespace    string `wire:"namespace"`
	Stream       string `wire:"stream"`
	Shard        uint32 `wire:"shard"`
	SubscriberID uint64 `wire:"subscriber_id"`
}

// SubscriptionsListInfo answers a SubscriptionsList.
type SubscriptionsListInfo struct {
	RequestID     uint64               `wire:"request_id"`
	NodeID        string               `wire:"node_id"`
	Subscriptions []SubscriptionInfo   `wire:"subscriptions"`
	NextCursor    *SubscriptionsCursor `wire:"next_cursor,opt"`
}

// SubscriptionInfo is one subscription of the list.
type SubscriptionInfo struct {
	TenantID       string  `wire:"tenant_id"`
	Namespace      string  `wire:"namespace"`
	Stream         string  `wire:"stream"`
	Shard          uint32  `wire:"shard"`
	SubscriberID   uint64  `wire:"subscriber_id"`
	SubscriptionID uint64  `wire:"subscription_id"`
	Connection     *uint64 `wire:"connection,opt"`
	Peer           string  `wire:"peer,opt"`
	Principal      string  `wire:"principal,opt"`
	Policy         string  `wire:"policy"` // block, drop_new, drop_old
	Depth          uint64  `wire:"depth"`
	Capacity       uint64  `wire:"capacity"`
	Dropped        uint64  `wire:"dropped"`
	Position       *uint64 `wire:"position,opt"`
	Tail           uint64  `wire:"tail"`
	AgeMS          uint64  `wire:"age_ms"`
}

func (*ShardInspect) Type() string          { return "shard_inspect" }
func (*ShardInspectInfo) Type() string      { return "shard_inspect_info" }
func (*SubscriptionsList) Type() string     { return "subscriptions_list" }
func (*SubscriptionsListInfo) Type() string { return "subscriptions_list_info" }
