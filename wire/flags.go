// Hot path.

package wire

// Flags is the flag word of a frame header. Base bits name the layout of the payload, the others
// say which optional parts it has. Without a base bit (zero) the payload is one JSON object.
type Flags uint16

const (
	FlagPublish       Flags = 0x0001 // base: binary publish batch
	FlagEventsLegacy  Flags = 0x0002 // base: event batch that names its subscription
	FlagEventsShared  Flags = 0x0004 // base: event batch without a subscription id
	FlagAcked         Flags = 0x0008 // publish: request id and ack mode come first, an answer is owed
	FlagAck           Flags = 0x0010 // base: publish acknowledgement
	FlagEvOffsets     Flags = 0x0020 // events: base offset
	FlagKeyed         Flags = 0x0040 // publish: routing key
	FlagAckOwner      Flags = 0x0080 // ack: owner of a forwarded batch
	FlagIdempotent    Flags = 0x0100 // acked publish: producer id and sequence
	FlagAckCode       Flags = 0x0200 // failed ack: error code and retry class
	FlagAckDetail     Flags = 0x0400 // failed ack with a code: reason and suggested wait
	FlagEvSkipped     Flags = 0x0800 // events with offsets: skip count
	FlagAckOffset     Flags = 0x1000 // successful ack: offset of the first record
	FlagEvPublisher   Flags = 0x2000 // events: publisher principal
	FlagEvTimes       Flags = 0x4000 // events: append time before each event
	FlagsKnown        Flags = 0x7FFF // all of the above; 0x8000 is reserved
	FlagsOriginal     Flags = 0x0007 // what a peer that announces nothing understands; never grows
	flagsPublishParts       = FlagPublish | FlagAcked | FlagKeyed | FlagIdempotent
	flagsAckParts           = FlagAck | FlagAckCode | FlagAckDetail | FlagAckOwner | FlagAckOffset
	flagsEventParts         = FlagEventsLegacy | FlagEventsShared | flagsEventShape
	// flagsEventShape are the optional parts of an event batch.
	flagsEventShape = FlagEvOffsets | FlagEvSkipped | FlagEvPublisher | FlagEvTimes
)

// FromClient says whether a client may send a frame with these flags: nil, the *Error to answer
// before the stream goes on (its cause is ErrFlags), or ErrIdempotentUnacked, after which the
// stream ends without an answer because there is nothing to correlate one with.
func (f Flags) FromClient() error {
	if f == 0 {
		return nil
	}
	if f&FlagPublish == 0 || f&^flagsPublishParts != 0 {
		return errUnsupportedFlags
	}
	if f&(FlagIdempotent|FlagAcked) == FlagIdempotent {
		return ErrIdempotentUnacked
	}
	return nil
}

// FromBroker says whether a broker may send a frame with these flags to a client that offered
// offered. Any error means that the stream is broken: ErrFlags, ErrFlagsNotOffered or
// ErrSkippedWithoutOffsets. Combinations that are never sent but have one reading (a detail
// without a code, both event layouts) are let through; the decoders read parts by flag bit.
func (f Flags) FromBroker(offered Flags) error {
	if f == 0 {
		return nil
	}
	if f&^FlagsKnown != 0 {
		return ErrFlags
	}
	var parts Flags
	switch {
	case f&(FlagEventsShared|FlagEventsLegacy) != 0:
		parts = flagsEventParts
	case f&FlagAck != 0:
		parts = flagsAckParts
	}
	if f&^parts != 0 {
		return ErrFlags
	}
	if f&^offered != 0 {
		return ErrFlagsNotOffered
	}
	if f&(FlagEvSkipped|FlagEvOffsets) == FlagEvSkipped {
		return ErrSkippedWithoutOffsets
	}
	return nil
}
