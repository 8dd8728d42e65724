package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readAnnotated reads a frame written by hand: per line hex digits or text between back quotes,
// and a comment.
func readAnnotated(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var frame []byte
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if text, ok := strings.CutPrefix(line, "`"); ok {
			frame = append(frame, strings.TrimSuffix(text, "`")...)
			continue
		}
		digits, _, _ := strings.Cut(line, "#")
		b, err := hex.DecodeString(strings.TrimSpace(digits))
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		frame = append(frame, b...)
	}
	return frame
}

var handNames = BinaryPublish{
	Tenant:    []byte("acme"),
	Namespace: []byte("prod"),
	Stream:    []byte("orders"),
	Section:   []byte("\x00\x00\x00\x02\x00\x00\x00\x03red\x00\x00\x00\x00"),
	Count:     2, PayloadBytes: 3,
}

// handPublish is handNames with flags and what set adds.
func handPublish(f Flags, sectionPos int, set func(*BinaryPublish)) *BinaryPublish {
	p := handNames
	p.Flags, p.SectionPos, p.AckMode = f, sectionPos, AckNone
	set(&p)
	return &p
}

// handFrames says what the frames in testdata/own_*.hex mean.
var handFrames = map[string]any{
	"auth": &Auth{TenantID: "acme", Token: "eyJ.e30.c2ln", ClientFlags: new(uint16(0x7FFF)),
		ClientFeatures: new(uint32(0xFFFFFFFF)), ClientFeaturesHi: new(uint32(0xB))},
	"auth_legacy": &Auth{TenantID: "acme", Token: "eyJ.e30.c2ln"},
	"auth_ok": &AuthOK{ServerFlags: 0x7FFF, ServerFeatures: new(uint32(0xFFFFFFFC)),
		ServerFeaturesHi: new(uint32(0xB)), ListenerPorts: []uint16{5000, 5001}, PublishWindow: new(uint32(256))},
	"publish": &Publish{TenantID: "acme", Namespace: "prod", Stream: "orders", Payload: []byte{0, 1, 2},
		Key: []byte{}, Shard: new(uint32(3)), RequestID: new(uint64(1<<64 - 1)), Ack: AckPerMessage},
	"publish_batch": &PublishBatch{TenantID: "acme", Namespace: "prod", Stream: "orders",
		Payloads: [][]byte{[]byte("red fox"), {}}, RequestID: new(uint64(5)), Ack: AckNone},
	"subscribe": &Subscribe{TenantID: "acme", Namespace: "prod", Stream: "orders",
		Start: &Start{Kind: StartOffset, Offset: 1<<53 + 1}, Shard: new(uint32(2)), QueueCapacity: new(uint32(64))},
	"event": &Event{TenantID: "acme", Namespace: "prod", Stream: "orders", Payload: []byte("last"), Offset: new(uint64(0))},
	"cache_put": &CachePut{TenantID: "acme", Namespace: "prod", Cache: "sessions", Key: "user/7", Value: []byte{},
		TTLMS: new(uint64(60000)), RequestID: new(uint64(31))},
	"cache_get": &CacheGet{TenantID: "acme", Namespace: "prod", Cache: "sessions", Key: `Zoë "7"`, RequestID: new(uint64(32))},
	"cache_value": &CacheValue{TenantID: "acme", Namespace: "prod", Cache: "sessions", Key: "user/7",
		Value: []byte{0xFF, 0xEF}, RequestID: new(uint64(32)), Version: new(uint64(4))},
	"ok": &OK{},
	"error": &ErrorMessage{Message: "publish queue full", Code: "overloaded", Retry: "retry_after",
		Detail: &ErrorDetail{Reason: "publish_queue_full", RetryAfterMS: 10}},
	"error_plain": &ErrorMessage{Message: "no such stream"},

	"publish_binary": handPublish(0x0001, 20, func(*BinaryPublish) {}),
	"publish_binary_keyed": handPublish(0x0041, 27, func(p *BinaryPublish) {
		p.HasKey, p.Key = true, []byte("eu-w1")
	}),
	"publish_binary_acked": handPublish(0x0009, 29, func(p *BinaryPublish) {
		p.RequestID, p.AckMode = 1000, AckPerMessage
	}),
	"publish_binary_acked_keyed": handPublish(0x0049, 33, func(p *BinaryPublish) {
		p.RequestID, p.AckMode = 1<<64-1, AckPerBatch
		p.HasKey, p.Key = true, []byte{0xFF, 0x00}
	}),
	"ack_ok": Ack{RequestID: 1000},
	"ack_error": Ack{RequestID: 1000, Err: &Error{Code: CodeOverloaded, Retry: RetryAfter, Message: "queue full",
		Reason: "publish_queue_full", RetryAfterMS: 10}},
	"events": &BinaryEvents{Flags: 0x0024, Base: 4000, Count: 2, Records: []byte("\x00\x00\x00\x03red\x00\x00\x00\x00")},
	"events_timed": &BinaryEvents{Flags: 0x6824, Base: 4000, Skipped: 2, Publisher: []byte("svc-b"), Count: 1,
		Records: []byte("\x00\x06\x44\x6d\xc4\xfa\x4c\x00\x00\x00\x00\x03red")},
}

// The bytes were written from the tables of the protocol, not by the encoder, so decoder and
// encoder cannot be wrong in the same way without being seen here.
func TestHandWrittenFramesDecodeAndEncodeByteForByte(t *testing.T) {
	paths, err := filepath.Glob("testdata/own_*.hex")
	if err != nil || len(paths) != len(handFrames) {
		t.Fatalf("%d files for %d meanings (%v)", len(paths), len(handFrames), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "own_"), ".hex")
		t.Run(name, func(t *testing.T) {
			frame := readAnnotated(t, path)
			h, err := ParseHeader(frame)
			if err != nil || int(h.Length) != len(frame)-HeaderSize {
				t.Fatalf("%+v, %v", h, err)
			}
			payload := frame[HeaderSize:]
			var got any
			var again []byte
			switch want := handFrames[name].(type) {
			case Message:
				got, err = DecodeMessage(payload)
				again = AppendMessage(nil, want)
			case *BinaryPublish:
				var p BinaryPublish
				err = DecodePublish(h.Flags, payload, &p)
				got, again = &p, AppendPublish(nil, want)
			case Ack:
				got, err = DecodeAck(h.Flags, payload)
				again = AppendAck(nil, &want, FlagsKnown, FeatureErrorCodes)
			case *BinaryEvents:
				var e BinaryEvents
				err = DecodeEvents(h.Flags, payload, &e)
				got, again = &e, encodeEvents(want)
			default:
				t.Fatal("no meaning given")
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(handFrames[name], got); diff != "" {
				t.Errorf("decoded (-want +got)\n%s", diff)
			}
			if !bytes.Equal(again, frame) {
				t.Errorf("encoded as\n%q, want\n%q", again, frame)
			}
		})
	}
}

// encodeEvents encodes a decoded batch of which Next was not called.
func encodeEvents(e *BinaryEvents) []byte {
	h := EventHeader{e.SubscriptionID, e.Base, e.Skipped, string(e.Publisher), e.Count}
	shape := e.Flags
	if shape&FlagEventsShared != 0 {
		shape &^= FlagEventsLegacy
	}
	frame := make([]byte, EventHeaderSize(shape, len(e.Publisher)))
	PutEventHeader(frame, shape, &h, len(e.Records))
	return append(frame, e.Records...)
}
