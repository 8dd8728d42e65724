package main

import "github.com/alecthomas/kong"

// Config is every setting of the broker. A field's flag is its name tag, its variable RINGCAST_ and
// the same in capitals with underscores, its key in the file the same in small letters with
// underscores. Numbers carry their unit in the name: _ms, _us, _bytes.
type Config struct {
	Config      Text             `name:"config" group:"start" placeholder:"FILE" help:"TOML file with settings. A key that is no setting, or a missing file, refuses the start."`
	Dev         Bool             `name:"dev" group:"start" help:"Run for development: data in ./ringcast-data, loopback only, generated certificate and keys, a printed token, streams created on first use."`
	PrintConfig bool             `name:"print-config" env:"-" group:"start" help:"Check the configuration, print what is in force (secrets masked) and exit."`
	Version     kong.VersionFlag `name:"version" env:"-" group:"start" help:"Print the version and exit."`

	QUICBind       Text `name:"quic-bind" group:"network" default:"0.0.0.0:5000" dev:"127.0.0.1:5000" placeholder:"HOST:PORT" help:"Address of the client listener (UDP). Port 0 takes any free port."`
	QUICListeners  Num  `name:"quic-listeners" group:"network" default:"0" help:"Client listeners on as many consecutive ports from quic-bind on, each with a socket and a receive loop of its own; 0 = half the usable CPUs, 1 to 4. Clients are told the ports; behind something that maps ports say 1."`
	TLSCert        Text `name:"tls-cert" group:"network" placeholder:"FILE" help:"Certificate chain (PEM) of the client listener. Needs tls-key."`
	TLSKey         Text `name:"tls-key" group:"network" placeholder:"FILE" help:"Private key (PEM) of tls-cert."`
	TLSRequireALPN Bool `name:"tls-require-alpn" group:"network" default:"false" help:"Refuse clients that offer no ALPN protocol; the official clients offer none by default."`
	TLSClientCA    Text `name:"tls-client-ca" group:"network" placeholder:"FILE" help:"CA file (PEM). Clients must then present a certificate that it signed."`
	MaxIdleTimeout Num  `name:"max-idle-timeout-ms" group:"network" default:"6000" help:"A connection that is silent so long is gone."`
	KeepAlive      Num  `name:"keepalive-ms" group:"network" default:"2000" help:"Quiet connections are kept alive this often."`
	StreamWindow   Size `name:"stream-window-bytes" group:"network" default:"4MiB" help:"Receive window of one stream."`
	ConnWindow     Size `name:"conn-window-bytes" group:"network" default:"16MiB" help:"Receive window of one connection."`
	MaxConns       Num  `name:"max-client-connections" group:"network" default:"8192" help:"Most client connections; more are refused in the handshake."`
	MaxConnsPerIP  Num  `name:"max-connections-per-ip" group:"network" default:"512" help:"The same for one address; 0 = off."`

	HTTPBind     Text `name:"http-bind" group:"network" default:"127.0.0.1:8080" dev:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of health, metrics and the admin API. Port 0 takes any free port."`
	HTTPTLSCert  Text `name:"http-tls-cert" group:"network" placeholder:"FILE" help:"Certificate chain (PEM) of the HTTP port."`
	HTTPTLSKey   Text `name:"http-tls-key" group:"network" placeholder:"FILE" help:"Private key (PEM) of http-tls-cert."`
	HTTPInsecure Bool `name:"http-insecure" group:"network" default:"false" help:"Allow HTTP without TLS beyond loopback: tokens then travel in the clear."`

	JWKS            Text `name:"jwks" group:"security" placeholder:"FILE|DIR|URL" help:"Where token keys come from: a file (one set for all tenants), a directory with TENANT.json, or a URL with {tenant}."`
	AuthTimeout     Num  `name:"auth-timeout-ms" group:"security" default:"10000" help:"A connection without an authenticated stream after this time is closed; 0 = off."`
	PreauthMaxFrame Size `name:"preauth-max-frame-bytes" group:"security" default:"64KiB" help:"Largest frame before authentication."`
	PreauthStreams  Num  `name:"preauth-max-streams-per-conn" group:"security" default:"16" help:"Unauthenticated streams of a connection that are read at a time."`

	DataDir       Text   `name:"data-dir" group:"storage" dev:"ringcast-data" placeholder:"DIR" help:"Where logs and the catalogue live. Without it only in-memory streams are served."`
	StorageEngine Choice `name:"storage-engine" group:"storage" default:"auto" choices:"auto,portable,uring,uring-direct" help:"How logs are written: auto (the first of uring-direct, uring and portable that the machine lets us have), portable, uring, uring-direct (io_uring past the page cache, where the file system takes that). A named engine that cannot run refuses the start."`
	FsyncMode     Choice `name:"durable-fsync-mode" group:"storage" default:"on_commit" choices:"on_commit,periodic,none" help:"Mode of durable streams created without one. periodic and none lose acknowledged records in a power cut."`
	FsyncInterval Num    `name:"durable-fsync-interval-ms" group:"storage" default:"250" help:"Longest that a periodic stream stays unsynced."`
	RepairTail    Bool   `name:"durable-repair-checksum-tail" group:"storage" default:"false" help:"Cut damage off the end of a log's newest file at start, although it was acknowledged, when nothing follows it. Loses data; ringcast log repair shows what first."`
	SegmentBytes  Size   `name:"durable-segment-bytes" group:"storage" default:"256MiB" help:"Size at which a log starts a new file."`
	Preallocate   Bool   `name:"durable-preallocate" group:"storage" default:"true" help:"Write zeros ahead of the tail of a log: syncs cost about half then."`
	VerifyAll     Bool   `name:"durable-verify-all-on-open" group:"storage" default:"false" help:"Read and verify every byte of every log at start. Without it sealed segments are verified when they are read."`

	RetentionBytes    Bound `name:"durable-retention-bytes" group:"storage" default:"off" help:"Most bytes that a shard of a durable stream keeps, unless the stream has a bound of its own; off = no bound. Whole files go, oldest first, never the one that is written."`
	RetentionSeconds  Bound `name:"durable-retention-seconds" group:"storage" default:"off" help:"Longest that a shard of a durable stream keeps a record, unless the stream has a bound of its own; off = no bound. A file goes when its newest record is so old."`
	RetentionInterval Num   `name:"durable-retention-interval-seconds" group:"storage" default:"60" help:"How often logs are looked at for what is to go."`

	AutoCreate      Bool `name:"auto-create" group:"broker" default:"false" dev:"true" help:"A publish, subscribe or cache access creates what it names."`
	AckOnCommit     Bool `name:"ack-on-commit" group:"broker" default:"true" help:"Answer publishes when they are written as their stream promises; false answers when they are queued."`
	CoreShards      Num  `name:"core-shards" group:"broker" default:"0" help:"Executors; 0 = one that is not bound to a CPU."`
	CorePin         Bool `name:"core-pin" group:"broker" default:"true" help:"Bind executors to CPUs; no effect with core-shards 0."`
	MaxFrame        Size `name:"max-frame-bytes" group:"broker" default:"16MiB" help:"Largest frame."`
	Inflight        Size `name:"broker-publish-inflight-bytes" group:"broker" default:"64MiB" help:"Bytes of accepted, unfinished publishes of the whole process."`
	ConnInflight    Size `name:"broker-publish-conn-inflight-bytes" group:"broker" default:"16MiB" help:"The same for one identity on one connection."`
	ConnTotal       Size `name:"broker-publish-conn-total-inflight-bytes" group:"broker" default:"0" help:"The same for all identities of one connection; 0 = four times that of one, at most that of the process."`
	QueueDepth      Num  `name:"broker-pub-queue-depth" group:"broker" default:"64" help:"Publish jobs guaranteed to each tenant."`
	QueueFactor     Num  `name:"broker-pub-workers-per-conn" group:"broker" default:"4" help:"Queue depth times this is the whole queue of an executor."`
	QueueWait       Num  `name:"publish-queue-wait-ms" group:"broker" default:"2000" help:"Longest that an acknowledged publish waits for room."`
	IngressWait     Bool `name:"pub-ingress-wait" group:"broker" default:"false" help:"Unacknowledged publishes wait for room instead of being dropped."`
	TenantBytes     Size `name:"tenant-publish-bytes-per-sec" group:"broker" default:"0" help:"Bytes that one tenant may publish per second on this broker, 4 for each record included; 0 = no bound."`
	TenantMsgs      Num  `name:"tenant-publish-msgs-per-sec" group:"broker" default:"0" help:"Records that one tenant may publish per second on this broker; 0 = no bound."`
	TenantQuotas    Text `name:"tenant-publish-quotas" group:"broker" placeholder:"TENANT:BYTES:MSGS,..." help:"Quotas of single tenants instead of the two above; 0 = no bound."`
	TenantBurst     Num  `name:"tenant-publish-burst-ms" group:"broker" default:"1000" help:"A tenant that was silent may publish so much of its quota at once."`
	AckWait         Num  `name:"ack-wait-timeout-ms" group:"broker" default:"2000" help:"A queued publish without an outcome after this time is answered unacknowledged."`
	PublishWindow   Num  `name:"broker-publish-window" group:"broker" default:"256" help:"Unanswered acknowledged publishes of one stream; 0 = no window is granted."`
	RecordPublisher Bool `name:"record-publishers" group:"broker" default:"false" help:"Store who published with each batch and show it to readers."`
	RingBytes       Size `name:"ring-bytes" group:"broker" default:"64MiB" help:"Frame bytes that a shard keeps in memory for readers that are slightly behind."`
	StateBytes      Size `name:"state-bytes" group:"broker" default:"256MiB" help:"Memory of the keyed states that atomic commits make, of all shards; a commit that would pass it is refused."`
	RetainedBytes   Size `name:"retained-bytes" group:"broker" default:"0" help:"Frame bytes that the rings of all shards keep together; 0 = a quarter of the memory limit, at least 256 MiB."`

	SubQueue      Num  `name:"subscriber-queue-capacity" group:"subscribers" default:"512" help:"Published batches queued for one subscriber before deliveries are dropped."`
	SubQueueMax   Num  `name:"subscriber-queue-capacity-max" group:"subscribers" default:"4096" help:"Most that a client may ask for."`
	SubQueueBytes Size `name:"subscriber-queue-bytes" group:"subscribers" default:"16MiB" help:"Frame bytes queued for one subscriber."`
	MaxSubs       Num  `name:"max-subscriptions-per-conn" group:"subscribers" default:"4096" help:"Subscriptions of one identity on a connection."`
	MaxSubsTotal  Num  `name:"max-subscriptions-per-conn-total" group:"subscribers" default:"16384" help:"Subscriptions of all identities on a connection."`
	SubStall      Num  `name:"sub-stall-timeout-ms" group:"subscribers" default:"0" help:"An event stream whose write stands still so long is reset; 0 = never, since official clients pause while they replay."`
	BatchEvents   Num  `name:"event-batch-max-events" group:"subscribers" default:"64" help:"Records joined into one event frame."`
	BatchBytes    Size `name:"event-batch-max-bytes" group:"subscribers" default:"64KiB" help:"Bytes joined into one event frame."`
	BatchDelay    Num  `name:"event-batch-max-delay-us" group:"subscribers" default:"0" help:"Longest that a busy reader's frame waits for more records, honoured to within 2 ms; 0 = never."`

	DrainTimeout Num    `name:"shutdown-drain-timeout-ms" group:"operation" default:"25000" help:"Budget of a graceful shutdown."`
	Predrain     Num    `name:"shutdown-predrain-ms" group:"operation" default:"0" help:"Serve so long after readiness turned false."`
	DrainLinger  Num    `name:"drain-linger-ms" group:"operation" default:"250" help:"Longest that closing waits for clients to read their last answers."`
	LogLevel     Choice `name:"log-level" group:"operation" default:"info" choices:"debug,info,warn,error" help:"debug, info, warn or error."`
	LogFormat    Choice `name:"log-format" group:"operation" default:"text" choices:"text,json" help:"text or json."`
}

// groups are the headings of --help.
var groups = kong.Groups{
	"start":       "Start",
	"network":     "Network",
	"security":    "Security",
	"storage":     "Storage",
	"broker":      "Broker",
	"subscribers": "Subscribers",
	"operation":   "Operation",
}
