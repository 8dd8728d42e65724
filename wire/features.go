package wire

// Features is the set of negotiated features: bits 0..31 travel as the first word, bits 32..63 as
// the second one, which exists only beside FeatureExtended.
type Features uint64

const (
	FeatureTopology            Features = 1 << 0
	FeatureRedirect            Features = 1 << 1
	FeatureCacheDelete         Features = 1 << 2
	FeatureConsumerGroup       Features = 1 << 3
	FeatureGroupDeadLetters    Features = 1 << 4
	FeatureStreamShards        Features = 1 << 5
	FeatureCacheWatch          Features = 1 << 6
	FeatureCacheWatchRetained  Features = 1 << 7
	FeatureCounters            Features = 1 << 8
	FeatureIdempotentProducer  Features = 1 << 9
	FeatureCacheShards         Features = 1 << 10
	FeatureErrorCodes          Features = 1 << 11
	FeatureShardMoved          Features = 1 << 12
	FeatureUnsupported         Features = 1 << 13
	FeatureSequenceReused      Features = 1 << 14
	FeaturePublishPipeline     Features = 1 << 15
	FeatureAtomicCommit        Features = 1 << 16
	FeatureStreamPublishWindow Features = 1 << 17
	FeatureShardOwners         Features = 1 << 18
	FeatureAckOnCommit         Features = 1 << 19
	FeatureGroupConsumer       Features = 1 << 20
	FeatureSubscriptionLagged  Features = 1 << 21
	FeatureGroupSkipped        Features = 1 << 22
	FeatureGroupPublisher      Features = 1 << 23
	FeatureGroupAdmin          Features = 1 << 24
	FeatureCacheConditional    Features = 1 << 25
	FeatureRecordTimestamps    Features = 1 << 26
	FeatureGroupClaimControl   Features = 1 << 27
	FeaturePublishConditional  Features = 1 << 28
	FeatureStreamRead          Features = 1 << 29
	FeatureSubscribeQueue      Features = 1 << 30
	FeatureExtended            Features = 1 << 31 // marker: the peer reads a second word
	FeatureInspect             Features = 1 << 32
	FeatureStreamDeleted       Features = 1 << 33
	FeaturePublishWidth        Features = 1 << 34
	FeatureExplicitShard       Features = 1 << 35
)

// FeaturesOf joins the two words of an auth or auth_ok. The second word counts only when the
// first one carries FeatureExtended.
func FeaturesOf(lo, hi uint32) Features {
	f := Features(lo)
	if f&FeatureExtended != 0 {
		f |= Features(hi) << 32
	}
	return f
}

// Words splits f as it is sent: FeatureExtended is set exactly when the second word is not zero.
func (f Features) Words() (lo, hi uint32) {
	lo, hi = uint32(f&^FeatureExtended), uint32(f>>32)
	if hi != 0 {
		lo |= uint32(FeatureExtended)
	}
	return lo, hi
}

// Has says whether all bits are in f.
func (f Features) Has(bits Features) bool { return f&bits == bits }
