package wire

// GroupPoll takes records of a consumer group.
type GroupPoll struct {
	TenantID     string  `wire:"tenant_id"`
	Namespace    string  `wire:"namespace"`
	Stream       string  `wire:"stream"`
	Shard        uint32  `wire:"shard"`
	Group        string  `wire:"group"`
	MaxRecords   uint32  `wire:"max_records"`
	WaitMS       uint64  `wire:"wait_ms,sent"` // 0 = answer at once
	RequestID    uint64  `wire:"request_id"`
	Consumer     *string `wire:"consumer,opt"` // 1 to 128 bytes, which is the receiver's to check
	Reclaim      bool    `wire:"reclaim,opt"`
	VisibilityMS uint64  `wire:"visibility_ms,opt"` // 0 = the broker's default
}

// GroupRecords answers a GroupPoll; no records is an answer.
type GroupRecords struct {
	RequestID uint64        `wire:"request_id"`
	Records   []GroupRecord `wire:"records"`
}

// GroupRecord is one delivery.
type GroupRecord struct {
	Offset          uint64  `wire:"offset"` // to settle with
	Payload         []byte  `wire:"payload"`
	Attempts        uint32  `wire:"attempts,sent"` // including this one; 0 = not reported
	SkippedBefore   uint64  `wire:"skipped_before,opt"`
	Publisher       string  `wire:"publisher,opt"`
	TimestampMicros *uint64 `wire:"timestamp_micros,opt"`
}

// GroupAck settles a delivery.
type GroupAck struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Offset    uint64 `wire:"offset"`
	RequestID uint64 `wire:"request_id"`
}

// GroupNack gives a delivery back.
type GroupNack struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Offset    uint64 `wire:"offset"`
	RequestID uint64 `wire:"request_id"`
	DelayMS   uint64 `wire:"delay_ms,opt"`
	Attempts  uint32 `wire:"attempts,opt"` // 0 = not named
}

// GroupExtend keeps a delivery for longer.
type GroupExtend struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Offset    uint64 `wire:"offset"`
	Attempts  uint32 `wire:"attempts"`
	ExtendMS  uint64 `wire:"extend_ms"`
	RequestID uint64 `wire:"request_id"`
}

// GroupExtended answers a GroupExtend.
type GroupExtended struct {
	VisibleMS uint64 `wire:"visible_ms"`
	RequestID uint64 `wire:"request_id"`
}

// GroupDeadLetter moves a delivery to the dead letters.
type GroupDeadLetter struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Offset    uint64 `wire:"offset"`
	RequestID uint64 `wire:"request_id"`
}

// GroupDeadLetters lists the dead letters.
type GroupDeadLetters struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	RequestID uint64 `wire:"request_id"`
}

// GroupDeadLetterList answers a GroupDeadLetters, in ascending order.
type GroupDeadLetterList struct {
	Offsets   []uint64 `wire:"offsets"`
	RequestID uint64   `wire:"request_id"`
}

// GroupDiscard forgets a dead letter.
type GroupDiscard struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Offset    uint64 `wire:"offset"`
	RequestID uint64 `wire:"request_id"`
}

// GroupRedrive delivers a dead letter again.
type GroupRedrive struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Offset    uint64 `wire:"offset"`
	RequestID uint64 `wire:"request_id"`
}

// GroupSeek moves a group.
type GroupSeek struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	Start     Start  `wire:"start"`
	IfNew     bool   `wire:"if_new,opt"`
	RequestID uint64 `wire:"request_id"`
}

// GroupPosition answers a GroupSeek.
type GroupPosition struct {
	Offset    uint64 `wire:"offset"`
	Moved     bool   `wire:"moved"`
	RequestID uint64 `wire:"request_id"`
}

// GroupDescribe asks for a group's state.
type GroupDescribe struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	RequestID uint64 `wire:"request_id"`
}

// GroupInfo answers a GroupDescribe.
type GroupInfo struct {
	Committed   *uint64 `wire:"committed,opt"`
	Tail        uint64  `wire:"tail"`
	InFlight    uint64  `wire:"in_flight"`
	Owed        uint64  `wire:"owed"`
	DeadLetters uint64  `wire:"dead_letters"`
	RequestID   uint64  `wire:"request_id"`
}

// GroupDelete forgets a group.
type GroupDelete struct {
	TenantID  string `wire:"tenant_id"`
	Namespace string `wire:"namespace"`
	Stream    string `wire:"stream"`
	Shard     uint32 `wire:"shard"`
	Group     string `wire:"group"`
	RequestID uint64 `wire:"request_id"`
}

// GroupDeleted answers a GroupDelete.
type GroupDeleted struct {
	Existed   bool   `wire:"existed"`
	RequestID uint64 `wire:"request_id"`
}

func (*GroupPoll) Type() string           { return "group_poll" }
func (*GroupRecords) Type() string        { return "group_records" }
func (*GroupAck) Type() string            { return "group_ack" }
func (*GroupNack) Type() string           { return "group_nack" }
func (*GroupExtend) Type() string         { return "group_extend" }
func (*GroupExtended) Type() string       { return "group_extended" }
func (*GroupDeadLetter) Type() string     { return "group_dead_letter" }
func (*GroupDeadLetters) Type() string    { return "group_dead_letters" }
func (*GroupDeadLetterList) Type() string { return "group_dead_letter_list" }
func (*GroupDiscard) Type() string        { return "group_discard" }
func (*GroupRedrive) Type() string        { return "group_redrive" }
func (*GroupSeek) Type() string           { return "group_seek" }
func (*GroupPosition) Type() string       { return "group_position" }
func (*GroupDescribe) Type() string       { return "group_describe" }
func (*GroupInfo) Type() string           { return "group_info" }
func (*GroupDelete) Type() string         { return "group_delete" }
func (*GroupDeleted) Type() string        { return "group_deleted" }
