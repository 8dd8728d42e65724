package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vector is a described frame; the members are explained in testdata/README.md.
type vector struct {
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Flags      Flags   `json:"flags"`
	FrameHex   string  `json:"frame_hex"`
	PayloadHex *string `json:"payload_hex"`
	Payload    string  `json:"payload_json"`

	Tenant     string   `json:"tenant_id"`
	Namespace  string   `json:"namespace"`
	Stream     string   `json:"stream"`
	Texts      []string `json:"payloads_utf8"`
	Hexes      []string `json:"payloads_hex"`
	KeyText    *string  `json:"key_utf8"`
	KeyHex     *string  `json:"key_hex"`
	RequestID  uint64   `json:"request_id"`
	AckMode    string   `json:"ack_mode"`
	ProducerID uint64   `json:"producer_id"`
	Sequence   uint64   `json:"sequence"`

	Status     string       `json:"status"`
	Message    *string      `json:"message"`
	Code       *string      `json:"code"`
	CodeNumber uint16       `json:"code_number"`
	Retry      string       `json:"retry"`
	Detail     *errorDetail `json:"detail"`
	Owner      *struct {
		NodeID     string `json:"node_id"`
		Addr       string `json:"addr"`
		Generation uint64 `json:"generation"`
	} `json:"owner"`
	Offset *uint64 `json:"offset"`

	SubscriptionID uint64   `json:"subscription_id"`
	Base           uint64   `json:"base_offset"`
	Skipped        uint64   `json:"skipped_before"`
	Publisher      string   `json:"publisher"`
	Times          []uint64 `json:"timestamps_micros"`

	Receiver string `json:"receiver"`
	Expect   string `json:"expect"`
}

type errorDetail struct {
	Reason       string `json:"reason"`
	RetryAfterMS uint64 `json:"retry_after_ms"`
}

func loadVector(t testing.TB, path string) (vector, []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v vector
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	onDisk, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(onDisk)); got != v.FrameHex {
		t.Fatalf("the two files of %s hold different frames", v.Name)
	}
	return v, mustHex(t, v.FrameHex)
}

func mustHex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkVectors runs every vector of dir whose name passes keep and returns how many there were.
func checkVectors(t *testing.T, dir string, keep func(name string) bool) int {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if name == "shard_hash" || !keep(name) {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) {
			v, frame := loadVector(t, path)
			if v.Kind == "reject" {
				checkReject(t, &v, frame)
				return
			}
			checkVector(t, &v, frame)
		})
	}
	return n
}

// Every golden vector says what its frame means. Decoding must agree in every member, encoding
// must give the same bytes, or for JSON the same object.
func TestGoldenVectorsDecodeAndEncode(t *testing.T) {
	n := checkVectors(t, "testdata", func(name string) bool { return strings.HasPrefix(name, "ours_") })
	if n < 51 {
		t.Fatalf("only %d vectors, some are missing", n)
	}
}

// The vectors of the original project are not ours to ship. Where a checkout has them beside it,
// they must hold as well.
func TestOriginalVectorsDecodeAndEncode(t *testing.T) {
	dir := os.Getenv("RINGCAST_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "vectors")
	}
	// The names are written out, so that a missing file is a failure and not a smaller loop.
	want := []string{
		"auth_ok", "auth_with_capabilities", "auth_extended_features", "auth_ok_extended_features",
		"publish", "subscribe", "event", "cache_put", "cache_get", "cache_value", "ok", "error",
		"binary_publish_keyed", "binary_publish_acked", "binary_publish_acked_keyed",
		"binary_publish_ack_ok", "binary_publish_ack_error",
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("SKIPPED: the original vectors are not here (%s; set RINGCAST_VECTORS); not checked: %s",
			dir, strings.Join(want, ", "))
	}
	n := checkVectors(t, dir, func(name string) bool { return slices.Contains(want, name) })
	if n != len(want) {
		t.Fatalf("%d of %d original vectors in %s", n, len(want), dir)
	}
}

func checkVector(t *testing.T, v *vector, frame []byte) {
	h, err := ParseHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	payload := frame[HeaderSize:]
	if int(h.Length) != len(payload) || h.Flags != v.Flags {
		t.Fatalf("header %+v, want flags %#x and %d bytes", h, v.Flags, len(payload))
	}
	if v.PayloadHex != nil && hex.EncodeToString(payload) != *v.PayloadHex {
		t.Fatal("payload_hex differs from the frame")
	}
	if got := AppendHeader(nil, h.Flags, len(payload)); !bytes.Equal(got, frame[:HeaderSize]) {
		t.Fatalf("header re-encoded as %x", got)
	}
	switch v.Kind {
	case "", "json_message":
		checkJSONVector(t, v, payload)
	case "binary_publish_batch", "binary_acked_publish_batch":
		checkPublishVector(t, v, frame)
	case "binary_publish_ack":
		checkAckVector(t, v, frame)
	case "binary_event_batch":
		checkEventsVector(t, v, frame)
	default:
		t.Fatalf("unknown kind %q", v.Kind)
	}
}

func checkJSONVector(t *testing.T, v *vector, payload []byte) {
	if string(payload) != v.Payload {
		t.Fatalf("payload is %s, want %s", payload, v.Payload)
	}
	m, err := DecodeMessage(payload)
	if err != nil {
		t.Fatal(err)
	}
	again := AppendMessage(nil, m)[HeaderSize:]
	if diff := cmp.Diff(jsonObject(t, payload), jsonObject(t, again)); diff != "" {
		t.Fatalf("re-encoded as %s\n%s", again, diff)
	}
}

// jsonObject decodes with another decoder than the one under test; numbers stay text.
func jsonObject(t *testing.T, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func (v *vector) records(t *testing.T) [][]byte {
	records := [][]byte{}
	for _, text := range v.Texts {
		records = append(records, []byte(text))
	}
	for _, text := range v.Hexes {
		records = append(records, mustHex(t, text))
	}
	return records
}

func checkPublishVector(t *testing.T, v *vector, frame []byte) {
	if err := v.Flags.FromClient(); err != nil {
		t.Fatal(err)
	}
	payload := frame[HeaderSize:]
	var p BinaryPublish
	if err := DecodePublish(v.Flags, payload, &p); err != nil {
		t.Fatal(err)
	}
	var key []byte
	switch {
	case v.KeyText != nil:
		key = []byte(*v.KeyText)
	case v.KeyHex != nil:
		key = mustHex(t, *v.KeyHex)
	}
	hasKey := v.KeyText != nil || v.KeyHex != nil
	if p.HasKey != hasKey || !bytes.Equal(p.Key, key) {
		t.Errorf("key %v %x, want %v %x", p.HasKey, p.Key, hasKey, key)
	}
	mode := AckNone
	if v.AckMode != "" {
		n, ok := enumValue(ackModeNames, v.AckMode)
		if !ok {
			t.Fatalf("ack mode %q", v.AckMode)
		}
		mode = AckMode(n)
	}
	type names struct{ Tenant, Namespace, Stream string }
	type ids struct {
		Request, Producer, Sequence uint64
		Mode                        AckMode
	}
	got := names{string(p.Tenant), string(p.Namespace), string(p.Stream)}
	if want := (names{v.Tenant, v.Namespace, v.Stream}); got != want {
		t.Errorf("names %+v, want %+v", got, want)
	}
	gotIDs := ids{p.RequestID, p.ProducerID, p.Sequence, p.AckMode}
	if want := (ids{v.RequestID, v.ProducerID, v.Sequence, mode}); gotIDs != want {
		t.Errorf("ids %+v, want %+v", gotIDs, want)
	}
	want := v.records(t)
	if got := sectionRecords(t, p.Section); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("records %q, want %q", got, want)
	}
	if int(p.Count) != len(want) || p.PayloadBytes != len(bytes.Join(want, nil)) {
		t.Errorf("count %d, %d bytes", p.Count, p.PayloadBytes)
	}
	if !bytes.Equal(payload[p.SectionPos:], p.Section) {
		t.Errorf("section at %d", p.SectionPos)
	}
	p.Section = AppendSection(nil, want...)
	if got := AppendPublish(nil, &p); !bytes.Equal(got, frame) {
		t.Errorf("re-encoded as\n%x, want\n%x", got, frame)
	}
}

// sectionRecords returns the records of a section with its count word.
func sectionRecords(t *testing.T, section []byte) [][]byte {
	t.Helper()
	count, _, err := CheckSection(section)
	if err != nil {
		t.Fatal(err)
	}
	records := [][]byte{}
	rest := section[4:]
	for {
		rec, tail, ok := NextRecord(rest)
		if !ok {
			break
		}
		records, rest = append(records, rec), tail
	}
	if int(count) != len(records) {
		t.Fatalf("%d records behind a count of %d", len(records), count)
	}
	return records
}

func checkAckVector(t *testing.T, v *vector, frame []byte) {
	if err := v.Flags.FromBroker(FlagsKnown); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeAck(v.Flags, frame[HeaderSize:])
	if err != nil {
		t.Fatal(err)
	}
	want := Ack{RequestID: v.RequestID}
	if v.Status == "error" {
		want.Err = &Error{Message: *v.Message}
		if v.Code != nil {
			code, ok := ParseCode(*v.Code)
			if !ok || uint16(code) != v.CodeNumber {
				t.Errorf("code %q is %d, want %d", *v.Code, code, v.CodeNumber)
			}
			want.Err.Code, want.Err.Retry = code, ParseRetry(v.Retry)
		}
		if v.Detail != nil {
			want.Err.Reason, want.Err.RetryAfterMS = v.Detail.Reason, v.Detail.RetryAfterMS
		}
	}
	if o := v.Owner; o != nil {
		want.Owner = &Owner{NodeID: o.NodeID, Addr: o.Addr, Generation: o.Generation}
	}
	if v.Offset != nil {
		want.HasOffset, want.Offset = true, *v.Offset
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got)\n%s", diff)
	}
	if again := AppendAck(nil, &want, v.Flags, FeatureErrorCodes); !bytes.Equal(again, frame) {
		t.Errorf("re-encoded as\n%x, want\n%x", again, frame)
	}
}

func checkEventsVector(t *testing.T, v *vector, frame []byte) {
	if err := v.Flags.FromBroker(FlagsKnown); err != nil {
		t.Fatal(err)
	}
	var e BinaryEvents
	if err := DecodeEvents(v.Flags, frame[HeaderSize:], &e); err != nil {
		t.Fatal(err)
	}
	want := EventHeader{v.SubscriptionID, v.Base, v.Skipped, v.Publisher, uint32(len(v.Hexes))}
	got := EventHeader{e.SubscriptionID, e.Base, e.Skipped, string(e.Publisher), e.Count}
	if got != want {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
	timed := v.Flags&FlagEvTimes != 0
	var body []byte
	for i, rec := range v.records(t) {
		var at uint64
		if timed {
			at = v.Times[i]
			body = AppendTimedRecords(body, AppendRecord(nil, rec), at)
		} else {
			body = AppendRecord(body, rec)
		}
		r, micros, ok := e.Next()
		if !ok || !bytes.Equal(r, rec) || micros != at {
			t.Errorf("record %d is %q at %d (%v), want %q at %d", i, r, micros, ok, rec, at)
		}
	}
	if r, _, ok := e.Next(); ok {
		t.Errorf("one record too many: %q", r)
	}
	size := EventHeaderSize(v.Flags, len(v.Publisher))
	again := make([]byte, size, size+len(body))
	PutEventHeader(again, v.Flags, &want, len(body))
	if again = append(again, body...); !bytes.Equal(again, frame) {
		t.Errorf("re-encoded as\n%x, want\n%x", again, frame)
	}
}

// rejections maps what a vector expects to the one error that says so.
var rejections = map[string]error{
	"bad_magic":                ErrMagic,
	"unsupported_version":      ErrVersion,
	"unknown_flags":            ErrFlags,
	"idempotent_without_acked": ErrIdempotentUnacked,
	"bad_ack_mode":             ErrAckMode,
	"bad_utf8":                 ErrUTF8,
	"count_exceeds_frame":      ErrCount,
	"truncated":                ErrTruncated,
	"skip_without_offsets":     ErrSkippedWithoutOffsets,
	"bad_status":               ErrAckStatus,
	"offset_on_failed_ack":     ErrAckOffsetOnFailure,
}

// Each reject vector must fail with its own error and with no other one of the list.
func checkReject(t *testing.T, v *vector, frame []byte) {
	want, ok := rejections[v.Expect]
	if !ok {
		t.Fatalf("no error for %q", v.Expect)
	}
	var got []error
	if v.Receiver != "client" {
		got = append(got, receiveFromClient(frame))
	}
	if v.Receiver != "broker" {
		got = append(got, receiveFromBroker(frame))
	}
	for _, err := range got {
		if !errors.Is(err, want) || !errors.Is(err, ErrMalformed) {
			t.Errorf("refused with %v, want %v", err, want)
		}
		for label, other := range rejections {
			if other != want && errors.Is(err, other) {
				t.Errorf("%v is also a %s", err, label)
			}
		}
	}
}

// receiveFromClient does what a broker does with one frame.
func receiveFromClient(frame []byte) error {
	h, err := ParseHeader(frame)
	if err != nil {
		return err
	}
	if err := h.Flags.FromClient(); err != nil {
		return err
	}
	if h.Flags == 0 {
		_, err := DecodeMessage(frame[HeaderSize:])
		return err
	}
	var p BinaryPublish
	return DecodePublish(h.Flags, frame[HeaderSize:], &p)
}

// receiveFromBroker does what a client that offered everything does with one frame.
func receiveFromBroker(frame []byte) error {
	h, err := ParseHeader(frame)
	if err != nil {
		return err
	}
	if err := h.Flags.FromBroker(FlagsKnown); err != nil {
		return err
	}
	switch {
	case h.Flags&FlagAck != 0:
		_, err = DecodeAck(h.Flags, frame[HeaderSize:])
	case h.Flags&flagsEventParts != 0:
		var e BinaryEvents
		err = DecodeEvents(h.Flags, frame[HeaderSize:], &e)
	default:
		_, err = DecodeMessage(frame[HeaderSize:])
	}
	return err
}
