package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A section is bounded by its bytes before anything is believed, and no prefix of one passes for
// a whole one (HZ-44).
func TestSectionIsBoundedByItsBytes(t *testing.T) {
	section := AppendSection(nil, []byte("red"), nil, []byte("fox"))
	count, end, payload, err := SectionLen(append(slices.Clone(section), 9, 9, 9, 9, 9))
	if err != nil || count != 3 || end != len(section) || payload != 6 {
		t.Fatalf("%d records, %d bytes, %d of payload, %v", count, end, payload, err)
	}
	for n := range section {
		if _, _, err := CheckSection(section[:n]); !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCount) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	if _, _, err := CheckSection(append(slices.Clone(section), 0)); !errors.Is(err, ErrTrailing) {
		t.Errorf("a byte too many: %v", err)
	}
	if count, payload, err := CheckSection(make([]byte, 4)); count != 0 || payload != 0 || err != nil {
		t.Errorf("empty section: %d, %d, %v", count, payload, err)
	}
	for _, c := range []struct {
		bytes string
		want  error
	}{
		{"\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00", ErrCount},
		{"\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00", ErrCount},
		{"\x00\x00\x00\x01\xff\xff\xff\xff\x00\x00", ErrTruncated},
		{"\x00\x00\x00\x01\x80\x00\x00\x00", ErrTruncated},
		{"\x00\x00\x00\x02\x00\x00\x00\x01x\x00\x00\x00", ErrTruncated},
	} {
		if _, _, _, err := SectionLen([]byte(c.bytes)); err != c.want {
			t.Errorf("%q: %v, want %v", c.bytes, err, c.want)
		}
	}
	if rec, rest, ok := NextRecord([]byte{0, 0, 0, 2, 'x'}); ok || rec != nil || rest != nil {
		t.Errorf("half a record: %q", rec)
	}
	many := binary.BigEndian.AppendUint32(nil, 1e6)
	many = append(many, make([]byte, 4e6)...)
	if count, payload, err := CheckSection(many); count != 1e6 || payload != 0 || err != nil {
		t.Errorf("a million empty records: %d, %d, %v", count, payload, err)
	}
}

// A broken acked batch still yields the request id to refuse, as soon as the id can be read.
func TestMalformedAckedPublishCanBeAnswered(t *testing.T) {
	frame := publishFrame(2, 3)
	f := FlagPublish | FlagAcked | FlagKeyed
	payload := frame[HeaderSize:]
	var p BinaryPublish
	for n := range payload {
		err := DecodePublish(f, payload[:n], &p)
		if n < 9 {
			if !errors.Is(err, ErrPublishPrefix) || errors.Is(err, ErrAckMode) {
				t.Errorf("first %d bytes: %v", n, err)
			}
			continue
		}
		answer, ok := errors.AsType[*Error](err)
		if !ok || answer.Code != CodeInvalidRequest || answer.Message != "malformed publish batch" || p.RequestID != 7 {
			t.Errorf("first %d bytes: %v for request %d", n, err, p.RequestID)
		}
		if errors.Is(err, ErrPublishPrefix) || !errors.Is(err, ErrMalformed) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	for _, mode := range []byte{0, 3, 255} {
		bad := slices.Clone(payload)
		bad[8] = mode
		if err := DecodePublish(f, bad, &p); !errors.Is(err, ErrAckMode) || !errors.Is(err, ErrPublishPrefix) {
			t.Errorf("ack mode %d: %v", mode, err)
		}
	}
	if err := DecodePublish(f, append(slices.Clone(payload), "trailing"...), &p); err != nil || len(p.Section) != 18 {
		t.Errorf("bytes behind the last record: %v, section of %d", err, len(p.Section))
	}
}

// An idempotent publish is acked per batch, whichever legal mode it names.
func TestIdempotentPublishIsAckedPerBatch(t *testing.T) {
	p := handNames
	p.Flags, p.AckMode = FlagPublish|FlagAcked|FlagIdempotent, AckPerMessage
	p.ProducerID, p.Sequence = math.MaxUint64, 1
	frame := AppendPublish(nil, &p)
	var got BinaryPublish
	if err := DecodePublish(p.Flags, frame[HeaderSize:], &got); err != nil {
		t.Fatal(err)
	}
	if got.AckMode != AckPerBatch || got.ProducerID != math.MaxUint64 || got.Sequence != 1 {
		t.Errorf("%+v", got)
	}
	head := AppendPublishHead(nil, &p, len(p.Section))
	if !bytes.Equal(append(head, p.Section...), frame) {
		t.Error("head and section are not the frame")
	}
}

func TestOverlongNameIsABugOfTheCaller(t *testing.T) {
	for what, f := range map[string]func(){
		"stream": func() { AppendPublish(nil, &BinaryPublish{Flags: FlagPublish, Stream: make([]byte, 1<<16)}) },
		"publisher": func() {
			PutEventHeader(make([]byte, 1024), FlagEvPublisher, &EventHeader{Publisher: strings.Repeat("p", 256)}, 0)
		},
		"frame": func() { PutHeader(make([]byte, HeaderSize), 0, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
}

// An ack holds a part exactly when the stream offered its bit, and a code only when the stream
// also offered to read codes.
func TestAckHoldsOnlyWhatWasOffered(t *testing.T) {
	owner := &Owner{NodeID: "n1", Addr: "10.0.0.1:5000", Generation: 3}
	refused := ErrOverloaded.WithReason("moving", 100)
	for _, c := range []struct {
		name    string
		ack     Ack
		offered Flags
		feats   Features
		want    Flags
	}{
		{"success, nothing offered", Ack{HasOffset: true, Owner: owner}, FlagAck, FeatureErrorCodes, FlagAck},
		{"success", Ack{HasOffset: true, Owner: owner}, FlagsKnown, 0, FlagAck | FlagAckOffset | FlagAckOwner},
		{"success without offset", Ack{}, FlagsKnown, FeatureErrorCodes, FlagAck},
		{"failure", Ack{Err: refused, Owner: owner, HasOffset: true}, FlagsKnown, FeatureErrorCodes, FlagAck | FlagAckCode | FlagAckDetail | FlagAckOwner},
		{"failure without the feature", Ack{Err: refused}, FlagsKnown, FeatureUnsupported, FlagAck},
		{"failure without the bit", Ack{Err: refused}, FlagsKnown &^ FlagAckCode, FeatureErrorCodes, FlagAck},
		{"failure without detail", Ack{Err: refused}, FlagsKnown &^ FlagAckDetail, FeatureErrorCodes, FlagAck | FlagAckCode},
		{"code without number", Ack{Err: ErrRevoked}, FlagsKnown, FeatureErrorCodes, FlagAck},
		{"no code", Ack{Err: &Error{Message: "m"}}, FlagsKnown, FeatureErrorCodes, FlagAck},
	} {
		c.ack.RequestID = 1 << 60
		frame := AppendAck([]byte("before"), &c.ack, c.offered, c.feats)[6:]
		h, err := ParseHeader(frame)
		if err != nil || h.Flags != c.want || int(h.Length) != len(frame)-HeaderSize {
			t.Errorf("%s: %+v, %v, want flags %#x", c.name, h, err, c.want)
			continue
		}
		got, err := DecodeAck(h.Flags, frame[HeaderSize:])
		if err != nil || got.RequestID != 1<<60 || (got.Err == nil) != (c.ack.Err == nil) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		for n := range len(frame) - HeaderSize {
			if _, err := DecodeAck(h.Flags, frame[HeaderSize:][:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("%s: first %d bytes: %v", c.name, n, err)
			}
		}
	}
}

// What a newer broker may say is kept or read on the safe side.
func TestAckFromANewerBroker(t *testing.T) {
	payload := []byte("\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x01m\x00\x11\x09trailing")
	got, err := DecodeAck(FlagAck|FlagAckCode, payload)
	if err != nil {
		t.Fatal(err)
	}
	want := Ack{RequestID: 7, Err: &Error{Code: 17, Retry: RetryFatal, Message: "m"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := got.Err.Code.String(); s != "code_17" {
		t.Errorf("shown as %s", s)
	}
	payload[14] = 0
	if got, err := DecodeAck(FlagAck|FlagAckCode, payload); err != nil || got.Err.Retry != RetryFatal {
		t.Errorf("class 0: %+v, %v", got.Err, err)
	}
}

// Every text of a binary layout is checked to be text.
func TestBinaryTextMustBeUTF8(t *testing.T) {
	const bad = "a\xff"
	for _, a := range []Ack{
		{Err: &Error{Code: 1, Message: bad}},
		{Err: &Error{Code: 1, Reason: bad}},
		{Owner: &Owner{NodeID: bad}},
		{Owner: &Owner{Addr: bad}},
	} {
		frame := AppendAck(nil, &a, FlagsKnown, FeatureErrorCodes)
		h, err := ParseHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeAck(h.Flags, frame[HeaderSize:]); err != ErrUTF8 {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, p := range []BinaryPublish{{Tenant: []byte(bad)}, {Namespace: []byte(bad)}, {Stream: []byte(bad)}} {
		p.Flags, p.Section = FlagPublish|FlagKeyed, make([]byte, 4)
		p.Key = []byte(bad) // a key is bytes
		frame := AppendPublish(nil, &p)
		var got BinaryPublish
		if err := DecodePublish(p.Flags, frame[HeaderSize:], &got); !errors.Is(err, ErrUTF8) {
			t.Errorf("%q: %v", frame, err)
		}
	}
}

// Texts that do not fit are cut between characters.
func TestLongAckMessageIsCut(t *testing.T) {
	e := &Error{Code: CodeInternal, Retry: RetryFatal, Message: strings.Repeat("a", 65534) + "éé", Reason: strings.Repeat("é", 1<<16)}
	frame := AppendAck(nil, &Ack{Err: e}, FlagsKnown, FeatureErrorCodes)
	got, err := DecodeAck(FlagAck|FlagAckCode|FlagAckDetail, frame[HeaderSize:])
	if err != nil {
		t.Fatal(err)
	}
	if got.Err.Message != strings.Repeat("a", 65534) || got.Err.Reason != strings.Repeat("é", 65534/2) {
		t.Errorf("message of %d, reason of %d bytes", len(got.Err.Message), len(got.Err.Reason))
	}
}

// Every shape round-trips, and no prefix of a batch passes for a whole one.
func TestEveryEventShape(t *testing.T) {
	records := AppendSection(nil, []byte("red"), nil, []byte("fox"))[4:]
	for n := range 32 {
		var shape Flags
		for i, f := range []Flags{FlagEvOffsets, FlagEvSkipped, FlagEvPublisher, FlagEvTimes, FlagEventsLegacy} {
			if n&(1<<i) != 0 {
				shape |= f
			}
		}
		body := records
		if shape&FlagEvTimes != 0 {
			body = AppendTimedRecords(nil, records, math.MaxUint64)
			if len(body) != TimedRecordsSize(3, len(records)) {
				t.Fatalf("%d bytes of timed records", len(body))
			}
		}
		h := EventHeader{SubscriptionID: 5, Base: 1 << 50, Skipped: 2, Publisher: "svc", Count: 3}
		frame := make([]byte, EventHeaderSize(shape, 3))
		PutEventHeader(frame, shape, &h, len(body))
		frame = append(frame, body...)
		head, err := ParseHeader(frame)
		if err != nil || int(head.Length) != len(frame)-HeaderSize {
			t.Fatalf("%#x: %+v, %v", shape, head, err)
		}
		var e BinaryEvents
		if shape&(FlagEvSkipped|FlagEvOffsets) == FlagEvSkipped {
			if err := DecodeEvents(head.Flags, frame[HeaderSize:], &e); err != ErrSkippedWithoutOffsets {
				t.Errorf("%#x: %v", shape, err)
			}
			continue
		}
		payload := append(slices.Clone(frame[HeaderSize:]), "trailing"...)
		if err := DecodeEvents(head.Flags, payload, &e); err != nil {
			t.Fatalf("%#x: %v", shape, err)
		}
		if !bytes.Equal(encodeEvents(&e), frame) {
			t.Errorf("%#x re-encodes as %x", shape, encodeEvents(&e))
		}
		for _, want := range []string{"red", "", "fox"} {
			rec, at, ok := e.Next()
			if !ok || string(rec) != want || (at == math.MaxUint64) != (shape&FlagEvTimes != 0) {
				t.Errorf("%#x: %q at %d, %v", shape, rec, at, ok)
			}
		}
		if _, _, ok := e.Next(); ok {
			t.Errorf("%#x: a record too many", shape)
		}
		for n := range len(frame) - HeaderSize {
			err := DecodeEvents(head.Flags, frame[HeaderSize:][:n], &e)
			if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCount) {
				t.Errorf("%#x: first %d bytes: %v", shape, n, err)
			}
		}
	}
	var e BinaryEvents
	if err := DecodeEvents(FlagEventsShared, []byte("\xff\xff\xff\xff0123456789"), &e); err != ErrCount {
		t.Errorf("absurd count: %v", err)
	}
	if err := DecodeEvents(FlagEventsShared|FlagEvTimes, []byte("\x00\x00\x00\x0101234567\x00\x00\x00"), &e); err != ErrCount {
		t.Errorf("count against the time as well: %v", err)
	}
	if err := DecodeEvents(FlagEventsShared|FlagEvPublisher, []byte("\x01\xff\x00\x00\x00\x00"), &e); err != ErrUTF8 {
		t.Errorf("publisher that is no text: %v", err)
	}
}
