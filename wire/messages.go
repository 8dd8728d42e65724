package wire

// clientMessages are the JSON messages that a client may send.
var clientMessages = []Message{
	(*Auth)(nil), (*Extension)(nil),
	(*Publish)(nil), (*PublishBatch)(nil), (*ProducerInit)(nil), (*PublishIdempotent)(nil),
	(*PublishIf)(nil), (*PublishWidth)(nil),
	(*Commit)(nil), (*StateGet)(nil),
	(*Subscribe)(nil),
	(*CachePut)(nil), (*CacheGet)(nil), (*CacheDelete)(nil), (*CachePutIf)(nil), (*CacheDeleteIf)(nil),
	(*CounterAdd)(nil), (*CounterGet)(nil), (*CacheWatch)(nil),
	(*GroupPoll)(nil), (*GroupAck)(nil), (*GroupNack)(nil), (*GroupExtend)(nil),
	(*GroupDeadLetter)(nil), (*GroupDeadLetters)(nil), (*GroupDiscard)(nil), (*GroupRedrive)(nil),
	(*GroupSeek)(nil), (*GroupDescribe)(nil), (*GroupDelete)(nil),
	(*Topology)(nil), (*StreamShards)(nil), (*CacheShards)(nil), (*ShardOwners)(nil),
	(*OffsetForTime)(nil), (*StreamRead)(nil), (*ShardInspect)(nil), (*SubscriptionsList)(nil),
}

// brokerMessages are the JSON messages that only a broker sends.
var brokerMessages = []Message{
	(*AuthOK)(nil), (*OK)(nil), (*ErrorMessage)(nil), (*Unsupported)(nil), (*NotLeader)(nil),
	(*PublishOK)(nil), (*PublishError)(nil), (*ProducerInitOK)(nil), (*PublishRefused)(nil),
	(*CommitOK)(nil), (*StateValue)(nil),
	(*Subscribed)(nil), (*SubscribeCursorError)(nil), (*EventStreamHello)(nil), (*Event)(nil),
	(*EventBatch)(nil), (*SubscriptionLagged)(nil), (*ShardMoved)(nil), (*StreamDeleted)(nil),
	(*CacheOK)(nil), (*CacheValue)(nil), (*CacheConditionResult)(nil), (*CounterValue)(nil),
	(*CacheWatchStarted)(nil), (*CacheEvent)(nil), (*CacheWatchLagged)(nil),
	(*GroupRecords)(nil), (*GroupExtended)(nil), (*GroupDeadLetterList)(nil), (*GroupPosition)(nil),
	(*GroupInfo)(nil), (*GroupDeleted)(nil),
	(*TopologyView)(nil), (*StreamShardsView)(nil), (*CacheShardsView)(nil), (*ShardOwnersView)(nil),
	(*OffsetValue)(nil), (*StreamRecords)(nil), (*ShardInspectInfo)(nil), (*SubscriptionsListInfo)(nil),
}
