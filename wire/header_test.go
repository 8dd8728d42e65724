package wire

import (
	"errors"
	"testing"
)

func TestHeaderIsRefusedByItsFirstBytes(t *testing.T) {
	good := AppendHeader(nil, FlagPublish|FlagKeyed, 1<<31-1)
	h, err := ParseHeader(append(good, "payload"...))
	if err != nil || h != (Header{FlagPublish | FlagKeyed, 1<<31 - 1}) {
		t.Fatalf("%+v, %v", h, err)
	}
	for n := range HeaderSize {
		if _, err := ParseHeader(good[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for i, want := range []error{ErrMagic, ErrMagic, ErrMagic, ErrMagic, ErrVersion, ErrVersion} {
		bad := append([]byte(nil), good...)
		bad[i]++
		if _, err := ParseHeader(bad); !errors.Is(err, want) {
			t.Errorf("byte %d changed: %v, want %v", i, err, want)
		}
	}
}

// Every one of the 65536 flag words: a broker takes the combinations of the protocol and no
// other, and knows which answer each of the others gets (OPS-5).
func TestUnknownFlagIsRefused(t *testing.T) {
	legal := map[Flags]bool{0x0000: true, 0x0001: true, 0x0041: true, 0x0009: true, 0x0049: true, 0x0109: true, 0x0149: true}
	silent := map[Flags]bool{0x0101: true, 0x0141: true}
	for n := range 1 << 16 {
		f := Flags(n)
		err := f.FromClient()
		answer, isAnswer := errors.AsType[*Error](err)
		switch {
		case legal[f]:
			if err != nil {
				t.Errorf("%#04x: %v", n, err)
			}
		case silent[f]:
			if !errors.Is(err, ErrIdempotentUnacked) || isAnswer {
				t.Errorf("%#04x: %v", n, err)
			}
		case !isAnswer || !errors.Is(err, ErrFlags) || answer.Code != CodeInvalidRequest ||
			answer.Retry != RetryFatal || answer.Message != "unsupported frame flags":
			t.Errorf("%#04x: %v", n, err)
		}
	}
}

// A client takes what a broker may send and it offered; nothing that a broker may not send gets
// through, whatever was offered.
func TestBrokerFlagsAreHeldAgainstTheOffer(t *testing.T) {
	may := map[Flags]bool{0: true}
	for _, owner := range []Flags{0, FlagAckOwner} {
		for _, f := range []Flags{0, FlagAckOffset, FlagAckCode, FlagAckCode | FlagAckDetail} {
			may[FlagAck|owner|f] = true
		}
	}
	for _, base := range []Flags{FlagEventsShared, FlagEventsLegacy} {
		for _, offsets := range []Flags{0, FlagEvOffsets, FlagEvOffsets | FlagEvSkipped} {
			for _, publisher := range []Flags{0, FlagEvPublisher} {
				may[base|offsets|publisher] = true
				may[base|offsets|publisher|FlagEvTimes] = true
			}
		}
	}
	// Never sent, but read by flag bit when they come.
	tolerated := func(f Flags) bool {
		return f&FlagAck != 0 && f&^flagsAckParts == 0 ||
			f&(FlagEventsLegacy|FlagEventsShared) == FlagEventsLegacy|FlagEventsShared && f&^flagsEventParts == 0 &&
				f&(FlagEvSkipped|FlagEvOffsets) != FlagEvSkipped
	}
	for n := range 1 << 16 {
		f := Flags(n)
		err := f.FromBroker(FlagsKnown)
		if (err == nil) != (may[f] || tolerated(f)) {
			t.Errorf("%#04x: %v", n, err)
		}
		if err == nil && f != 0 {
			if err := f.FromBroker(FlagsKnown &^ (f & -f)); !errors.Is(err, ErrFlagsNotOffered) {
				t.Errorf("%#04x without its lowest bit offered: %v", n, err)
			}
		}
	}
	if err := (FlagEventsShared | FlagEvSkipped).FromBroker(FlagsKnown); !errors.Is(err, ErrSkippedWithoutOffsets) {
		t.Errorf("skipped without offsets: %v", err)
	}
	if err := Flags(0).FromBroker(0); err != nil {
		t.Errorf("JSON needs no offer: %v", err)
	}
}

func TestSecondFeatureWordCountsOnlyBehindItsMarker(t *testing.T) {
	if f := FeaturesOf(1, 0xFFFFFFFF); f != FeatureTopology {
		t.Errorf("without the marker: %#x", f)
	}
	f := FeaturesOf(0x80000001, 0xB)
	if !f.Has(FeatureTopology | FeatureInspect | FeatureStreamDeleted | FeatureExplicitShard) {
		t.Errorf("with it: %#x", f)
	}
	for _, c := range []struct {
		f      Features
		lo, hi uint32
	}{
		{0, 0, 0},
		{FeatureExtended, 0, 0},
		{FeatureErrorCodes, 0x800, 0},
		{FeatureErrorCodes | FeatureInspect, 0x80000800, 1},
		{FeaturePublishWidth | FeatureExplicitShard, 0x80000000, 0xC},
	} {
		if lo, hi := c.f.Words(); lo != c.lo || hi != c.hi {
			t.Errorf("%#x is %#x %#x", c.f, lo, hi)
		}
	}
	// What the protocol says an honest single broker advertises.
	if all := Features(0x7FFFFFFC); all.Has(FeatureTopology) || all.Has(FeatureRedirect) || !all.Has(FeatureCacheDelete|FeatureSubscribeQueue) {
		t.Errorf("first word")
	}
	memory := FeatureCacheDelete | FeatureStreamShards | FeatureIdempotentProducer | FeatureCacheShards | FeatureErrorCodes |
		FeatureShardMoved | FeatureUnsupported | FeatureSequenceReused | FeaturePublishPipeline | FeatureStreamPublishWindow |
		FeatureShardOwners | FeatureAckOnCommit | FeatureCacheConditional | FeatureSubscribeQueue
	if memory != 0x420EFE24 {
		t.Errorf("in-memory set is %#x", uint64(memory))
	}
	var a Auth
	a.SetFeatures(FeatureErrorCodes | FeatureInspect)
	if got := a.Features(); got != FeatureErrorCodes|FeatureInspect|FeatureExtended {
		t.Errorf("through auth: %#x", got)
	}
	if f, negotiated := a.Flags(); f != FlagsOriginal || negotiated {
		t.Errorf("flags %#x, %v", f, negotiated)
	}
	var ok AuthOK
	ok.SetFeatures(FeatureErrorCodes)
	if ok.ServerFeaturesHi != nil || ok.Features() != FeatureErrorCodes {
		t.Errorf("through auth_ok: %+v", ok)
	}
}
