package wire

// Commit writes one event and the keyed state that follows from it, as one record.
type Commit struct {
	TenantID       string   `wire:"tenant_id"`
	Namespace      string   `wire:"namespace"`
	Stream         string   `wire:"stream"`
	EntityKey      []byte   `wire:"entity_key"` // routes like a key, also when empty
	Event          []byte   `wire:"event"`
	Changes        []Change `wire:"changes,opt"`
	RequestID      uint64   `wire:"request_id"`
	ExpectedOffset *uint64  `wire:"expected_offset,opt"`
	Shard          *uint32  `wire:"shard,opt"`
}

// ChangeOp is what a Change does.
type ChangeOp uint8

const (
	ChangePut ChangeOp = iota
	ChangeDelete
)

var changeNames = []string{ChangePut: "put", ChangeDelete: "delete"}

func (ChangeOp) names() []string { return changeNames }

// Change is one state change of a Commit.
type Change struct {
	Op    ChangeOp `wire:"op"`
	Key   string   `wire:"key"`
	Value []byte   `wire:"value,opt"` // of a put
	// Stream is not part of the protocol: a commit has one stream, and a change that names another one
	// is to be refused and not made to this one.
	Stream *string `wire:"stream,opt"`
}

// valid holds when exactly a put has a value; that of a delete is an unknown member and dropped.
func (c *Change) valid() bool {
	if c.Op == ChangeDelete {
		c.Value = nil
		return true
	}
	return c.Value != nil
}

// CommitOK answers a Commit that was applied.
type CommitOK struct {
	RequestID uint64 `wire:"request_id"`
	Offset    uint64 `wire:"offset"` // of the event, and version of every key written
}

// StateGet reads one key of the state that commits built.
type StateGet struct {
	TenantID  string  `wire:"tenant_id"`
	Namespace string  `wire:"namespace"`
	Stream    string  `wire:"stream"`
	EntityKey []byte  `wire:"entity_key"`
	Key       string  `wire:"key"`
	RequestID uint64  `wire:"request_id"`
	Shard     *uint32 `wire:"shard,opt"`
}

// StateValue answers a StateGet.
type StateValue struct {
	Value     []byte  `wire:"value,nullable"` // nil = nothing
	Version   *uint64 `wire:"version,opt"`    // offset of the commit that wrote it
	AsOf      *uint64 `wire:"as_of,opt"`      // offset of the last commit reflected
	RequestID uint64  `wire:"request_id"`
}

func (*Commit) Type() string     { return "commit" }
func (*CommitOK) Type() string   { return "commit_ok" }
func (*StateGet) Type() string   { return "state_get" }
func (*StateValue) Type() string { return "state_value" }
