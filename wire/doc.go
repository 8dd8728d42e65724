// Package wire turns bytes into meaning and back: frame headers and flags, the JSON messages, the
// binary layouts of the data path, error codes with their retry classes, the hash from key to
// shard, and the pooled, counted memory that frames live in.
//
//	stream bytes
//	    |  ParseHeader: magic, version, flags, length
//	    v
//	Flags.FromClient / FromBroker: may the peer send this?          no -> *Error or end of stream
//	    |
//	    +-- 0 ------------ DecodeMessage --> *Subscribe, *CachePut, ...   (copies)
//	    +-- FlagPublish -- DecodePublish --> BinaryPublish                (views)
//	    +-- FlagAck ------ DecodeAck ------> Ack                          (copies, on failures only)
//	    +-- FlagEvents* -- DecodeEvents ---> BinaryEvents                 (views)
//
//	a publish frame in a Buf
//	+----------+---------------------+-------------------------------------+
//	| Headroom | ids, key, names     | records section: count, (len, data)* |
//	+----------+---------------------+-------------------------------------+
//	           ^ Bytes()             ^ SectionPos     never re-encoded: the log writes these
//	                                                  bytes, an event batch carries them
//	                  ^ Before(pos, n): the header of the event frame goes here
//
// What is here:
//
//   - header.go, flags.go, features.go: the frame and what was negotiated
//   - publish.go, ack.go, events.go, section.go: binary layouts, read with cursor.go
//   - json.go: the two JSON functions. messages.go lists the messages, the msg files hold their
//     structs, jsonplan.go turns struct tags into a codec, jsonscan.go reads JSON text,
//     jsonvariant.go holds the few types with a form of their own
//   - errors.go: codes, classes and Error, what a peer is told. malformed.go: what a decoder says
//   - buf.go, pool.go: Buf and Pool; bufcheck.go: what invariants builds check of them
//   - shard.go: routing keys to shards
//
// Who owns what. A decoded binary layout and what NextRecord returns are views: they live as long
// as the payload they were read from. A decoded message owns its memory. A Buf is born with one
// reference; see Buf. Everything else is a value. The tables of this package are built when the
// program starts and never written again; nothing else is shared, except a Pool, which is safe for
// concurrent use.
//
// No goroutine runs here, and nothing reads a clock, a file or a socket.
//
// What fails. Every decoding error is an ErrMalformed; most are constants, so that a hostile peer
// buys no allocation with a bad frame. The errors of DecodePublish that have an answer are an
// *Error with the malformed cause inside. No decoder reserves memory on the word of a count or a
// length: binary decoders reserve none, and DecodeMessage counts what is there before it makes
// room. Encoders do not fail; what cannot be put into a layout (a name beyond 65535 bytes, a
// publisher beyond 255) is a bug of the caller and panics, except the texts of errors, which are
// cut.
//
// What it refuses to do: mask off a flag bit that it does not know, accept JSON that is only
// almost right, guess an answer. Which answer a malformed frame gets is decided in core/serve.
package wire
