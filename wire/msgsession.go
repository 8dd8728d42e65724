package wire

// Auth is the first frame of every stream that a client opens.
type Auth struct {
	TenantID         string  `wire:"tenant_id"`
	Token            string  `wire:"token"`
	ClientFlags      *uint16 `wire:"client_flags,opt"` // nil: FlagsOriginal, and no auth_ok is read
	ClientFeatures   *uint32 `wire:"client_features,opt"`
	ClientFeaturesHi *uint32 `wire:"client_features_hi,opt"`
}

// Flags returns the frame flags that the client reads. negotiated is false for a client that
// named none: it is answered OK instead of AuthOK.
func (m *Auth) Flags() (f Flags, negotiated bool) {
	if m.ClientFlags == nil {
		return FlagsOriginal, false
	}
	return Flags(*m.ClientFlags), true
}

// Features returns the features that the client implements.
func (m *Auth) Features() Features { return featuresOf(m.ClientFeatures, m.ClientFeaturesHi) }

// SetFeatures sets both feature words.
func (m *Auth) SetFeatures(f Features) { m.ClientFeatures, m.ClientFeaturesHi = featureWords(f) }

// AuthOK answers an Auth that named its flags.
type AuthOK struct {
	ServerFlags      uint16   `wire:"server_flags"`
	ServerFeatures   *uint32  `wire:"server_features,opt"` // always sent by us
	ServerFeaturesHi *uint32  `wire:"server_features_hi,opt"`
	ListenerPorts    []uint16 `wire:"listener_ports,opt"`
	PublishWindow    *uint32  `wire:"publish_window,opt"`
}

// Features returns the features that the broker serves.
func (m *AuthOK) Features() Features { return featuresOf(m.ServerFeatures, m.ServerFeaturesHi) }

// SetFeatures sets both feature words. f must not hold second-word features for a client that did
// not offer FeatureExtended.
func (m *AuthOK) SetFeatures(f Features) { m.ServerFeatures, m.ServerFeaturesHi = featureWords(f) }

// featuresOf joins two optional words.
func featuresOf(lo, hi *uint32) Features {
	var words [2]uint32
	for i, w := range []*uint32{lo, hi} {
		if w != nil {
			words[i] = *w
		}
	}
	return FeaturesOf(words[0], words[1])
}

// featureWords splits f; the second word is nil when it is zero.
func featureWords(f Features) (lo, hi *uint32) {
	l, h := f.Words()
	if h != 0 {
		hi = &h
	}
	return &l, hi
}

// OK answers a legacy auth and a cache write without a request id.
type OK struct{}

// ErrorMessage refuses the oldest unanswered request of its stream.
type ErrorMessage struct {
	Message string       `wire:"message"`
	Code    string       `wire:"code,opt"` // only to a stream that offered FeatureErrorCodes
	Retry   string       `wire:"retry,opt"`
	Detail  *ErrorDetail `wire:"detail,opt"`
}

// ErrorDetail is what a refusal says to machines.
type ErrorDetail struct {
	Reason       string `wire:"reason,opt"`
	RetryAfterMS uint64 `wire:"retry_after_ms,opt"`
}

// NewErrorMessage puts e as a stream with these features may see it.
func NewErrorMessage(e *Error, feats Features) *ErrorMessage {
	m := &ErrorMessage{Message: e.Message}
	m.Code, m.Retry, m.Detail = errorMembers(e, feats)
	return m
}

// Err returns the refusal as an error.
func (m *ErrorMessage) Err() *Error { return errorOf(m.Message, m.Code, m.Retry, m.Detail) }

// errorMembers returns the members of e beside its message.
func errorMembers(e *Error, feats Features) (code, retry string, detail *ErrorDetail) {
	if !feats.Has(FeatureErrorCodes) || e.Code == 0 {
		return "", "", nil
	}
	if e.Reason != "" || e.RetryAfterMS != 0 {
		detail = &ErrorDetail{Reason: e.Reason, RetryAfterMS: e.RetryAfterMS}
	}
	return e.Code.String(), e.Retry.String(), detail
}

// errorOf joins what errorMembers took apart. A refusal without a code has Code and Retry 0; a
// code that this version does not know is kept as text.
func errorOf(message, code, retry string, detail *ErrorDetail) *Error {
	e := &Error{Message: message}
	if code != "" {
		var known bool
		if e.Code, known = ParseCode(code); !known {
			e.CodeText = code
		}
		e.Retry = e.Code.Retry()
	}
	if retry != "" {
		e.Retry = ParseRetry(retry)
	}
	if detail != nil {
		e.Reason, e.RetryAfterMS = detail.Reason, detail.RetryAfterMS
	}
	return e
}

// Unsupported answers a request of a type that the broker does not know.
type Unsupported struct {
	RequestType string  `wire:"request_type"`
	Extension   string  `wire:"extension,opt"` // the name of an extension request
	RequestID   *uint64 `wire:"request_id,opt"`
}

// Extension is reserved; it is always answered Unsupported.
type Extension struct {
	Name      string  `wire:"name"`
	RequestID *uint64 `wire:"request_id,opt"`
	Body      RawJSON `wire:"body,opt"`
}

// RawJSON is the text of one JSON value; nil is null or none.
type RawJSON []byte

// NotLeader sends the client to the owner of a shard.
type NotLeader struct {
	NodeID     string `wire:"node_id"`
	Addr       string `wire:"addr,opt"`
	Generation uint64 `wire:"generation"`
}

func (*Auth) Type() string         { return "auth" }
func (*AuthOK) Type() string       { return "auth_ok" }
func (*OK) Type() string           { return "ok" }
func (*ErrorMessage) Type() string { return "error" }
func (*Unsupported) Type() string  { return "unsupported" }
func (*Extension) Type() string    { return "extension" }
func (*NotLeader) Type() string    { return "not_leader" }
