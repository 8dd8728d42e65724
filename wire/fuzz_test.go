package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seedFrames returns every frame of testdata, so that fuzzing starts from each layout.
func seedFrames(f *testing.F) [][]byte {
	f.Helper()
	var frames [][]byte
	paths, err := filepath.Glob("testdata/own_*.hex")
	if err != nil || len(paths) == 0 {
		f.Fatal(paths, err)
	}
	for _, path := range paths {
		frames = append(frames, readAnnotated(f, path))
	}
	paths, err = filepath.Glob("testdata/ours_*.json")
	if err != nil || len(paths) == 0 {
		f.Fatal(paths, err)
	}
	for _, path := range paths {
		_, frame := loadVector(f, path)
		frames = append(frames, frame)
	}
	return frames
}

// addFrames seeds a target that takes flags and payload.
func addFrames(f *testing.F, with Flags) {
	for _, frame := range seedFrames(f) {
		if h, err := ParseHeader(frame); err == nil && h.Flags&with != 0 {
			f.Add(uint16(h.Flags), frame[HeaderSize:])
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, frame := range seedFrames(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if got := AppendHeader(nil, h.Flags, int(h.Length)); !bytes.Equal(got, b[:HeaderSize]) {
			t.Fatalf("%x is read as %+v and written as %x", b[:HeaderSize], h, got)
		}
		if h.Flags.FromClient() == nil && h.Flags&^flagsPublishParts != 0 {
			t.Fatalf("flags %#x from a client", h.Flags)
		}
	})
}

func FuzzSection(f *testing.F) {
	f.Add(AppendSection(nil))
	f.Add(AppendSection(nil, []byte("red"), nil))
	f.Add([]byte("\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		count, end, payload, err := SectionLen(b)
		if err != nil {
			if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCount) {
				t.Fatal(err)
			}
			return
		}
		if end > len(b) || uint64(count) > uint64(len(b))/4 {
			t.Fatalf("%d records in %d of %d bytes", count, end, len(b))
		}
		records := sectionRecords(t, b[:end])
		if n := len(bytes.Join(records, nil)); n != payload {
			t.Fatalf("payload of %d, want %d", n, payload)
		}
		if got := AppendSection(nil, records...); !bytes.Equal(got, b[:end]) {
			t.Fatalf("written as %x", got)
		}
	})
}

func FuzzPublish(f *testing.F) {
	addFrames(f, FlagPublish)
	f.Fuzz(func(t *testing.T, flags uint16, payload []byte) {
		fl := Flags(flags)
		if fl&FlagPublish == 0 || fl.FromClient() != nil {
			return
		}
		var p BinaryPublish
		if err := DecodePublish(fl, payload, &p); err != nil {
			_, answerable := errors.AsType[*Error](err)
			if answerable == errors.Is(err, ErrPublishPrefix) || !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if uint64(p.Count) > uint64(len(payload))/4 || p.SectionPos+len(p.Section) > len(payload) {
			t.Fatalf("%d records in section %d+%d of %d bytes", p.Count, p.SectionPos, len(p.Section), len(payload))
		}
		again := AppendPublish(nil, &p)
		var q BinaryPublish
		if err := DecodePublish(fl, again[HeaderSize:], &q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, q); diff != "" {
			t.Fatal(diff)
		}
		// Only the ack mode of an idempotent publish is read as another value than it has.
		want := slices.Clone(payload[:p.SectionPos+len(p.Section)])
		if fl&FlagIdempotent != 0 {
			want[8] = byte(AckPerBatch)
		}
		if !bytes.Equal(again[HeaderSize:], want) {
			t.Fatalf("%x is written as %x", want, again[HeaderSize:])
		}
	})
}

func FuzzAck(f *testing.F) {
	addFrames(f, FlagAck)
	f.Fuzz(func(t *testing.T, flags uint16, payload []byte) {
		fl := Flags(flags)
		if fl&FlagAck == 0 || fl.FromBroker(FlagsKnown) != nil {
			return
		}
		a, err := DecodeAck(fl, payload)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		frame := AppendAck(nil, &a, FlagsKnown, FeatureErrorCodes)
		h, err := ParseHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		b, err := DecodeAck(h.Flags, frame[HeaderSize:])
		if err != nil {
			t.Fatal(err)
		}
		if a.Err != nil && h.Flags&FlagAckCode == 0 {
			// Without a code there is nothing but the message.
			a.Err = &Error{Message: a.Err.Message}
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("flags %#x, then %#x\n%s", fl, h.Flags, diff)
		}
	})
}

func FuzzEvents(f *testing.F) {
	addFrames(f, flagsEventParts)
	f.Fuzz(func(t *testing.T, flags uint16, payload []byte) {
		fl := Flags(flags)
		if fl&(FlagEventsShared|FlagEventsLegacy) == 0 || fl.FromBroker(FlagsKnown) != nil {
			return
		}
		var e BinaryEvents
		if err := DecodeEvents(fl, payload, &e); err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		frame := encodeEvents(&e)
		if n := len(frame) - HeaderSize; n > len(payload) || !bytes.Equal(frame[HeaderSize:], payload[:n]) {
			t.Fatalf("%x is written as %x", payload, frame[HeaderSize:])
		}
		n := uint32(0)
		for {
			rec, _, ok := e.Next()
			if !ok {
				break
			}
			if n++; len(rec) > len(payload) {
				t.Fatalf("record of %d bytes", len(rec))
			}
		}
		if n != e.Count || len(e.Records) != 0 {
			t.Fatalf("%d records of %d, %d bytes left", n, e.Count, len(e.Records))
		}
	})
}

func FuzzMessage(f *testing.F) {
	for _, line := range messageLines(f) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"type":"ok","x":` + strings.Repeat(`[{"a":`, 40)))
	f.Add([]byte(`{"request_id":7,"type":"teleport","name":"\ud83d\ude00"}`))
	f.Add([]byte(`{"type":"publish_batch","tenant_id":"","namespace":"","stream":"","payloads":["","","",""]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var m Message
		var err error
		// The runtime and the fuzzing engine allocate beside us, hence the slack.
		if n := bytesAllocated(func() { m, err = DecodeMessage(payload) }); n > 64<<10+30*uint64(len(payload)) {
			t.Fatalf("%d bytes for a payload of %d", n, len(payload))
		}
		if err == nil || !errors.Is(err, ErrMalformed) {
			// Whatever we take, another decoder takes.
			if !json.Valid(payload) {
				t.Fatalf("%q is no JSON", payload)
			}
		}
		if err != nil {
			_, unknown := errors.AsType[*UnknownTypeError](err)
			if unknown == errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		frame := AppendMessage(nil, m)
		if !json.Valid(frame[HeaderSize:]) {
			t.Fatalf("written as %q", frame[HeaderSize:])
		}
		again, err := DecodeMessage(frame[HeaderSize:])
		if err != nil {
			t.Fatalf("%q: %v", frame[HeaderSize:], err)
		}
		if second := AppendMessage(nil, again); !bytes.Equal(frame, second) {
			t.Fatalf("first %q, then %q", frame[HeaderSize:], second[HeaderSize:])
		}
	})
}
