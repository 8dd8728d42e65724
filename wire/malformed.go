package wire

import "errors"

// ErrMalformed is what every decoding error is: errors.Is(err, ErrMalformed) holds for all below
// and for what the JSON decoder returns.
var ErrMalformed = errors.New("wire: malformed")

// malformed is one way of being malformed. Decoders return these constants as they are, so that a
// bad frame costs no allocation; the type makes each of them differ from every other.
type malformed string

func (m malformed) Error() string { return "wire: " + string(m) }

// Is makes every malformed an ErrMalformed.
func (m malformed) Is(target error) bool { return target == ErrMalformed }

// Ways of being malformed, for errors.Is.
var (
	ErrMagic                 error = malformed("not a frame")
	ErrVersion               error = malformed("unknown frame version")
	ErrTruncated             error = malformed("bytes end inside a field")
	ErrTrailing              error = malformed("bytes after the last field")
	ErrCount                 error = malformed("count exceeds the bytes that are left")
	ErrUTF8                  error = malformed("invalid UTF-8")
	ErrFlags                 error = malformed("unknown or misplaced flag bits")
	ErrFlagsNotOffered       error = malformed("flag bits that were not offered")
	ErrIdempotentUnacked     error = malformed("idempotent publish without the acked bit")
	ErrSkippedWithoutOffsets error = malformed("skip count without offsets")
	ErrPublishPrefix         error = malformed("acked publish without a readable request id")
	ErrAckMode               error = prefixError("unknown ack mode")
	ErrAckStatus             error = malformed("unknown ack status")
	ErrAckOffsetOnFailure    error = malformed("offset on a failed ack")
)

// prefixError is a malformed that also is an ErrPublishPrefix: the stream must end, because no
// answer could be matched to the request.
type prefixError string

func (p prefixError) Error() string { return "wire: " + string(p) }

// Is makes every prefixError an ErrPublishPrefix and an ErrMalformed.
func (p prefixError) Is(target error) bool {
	return target == ErrPublishPrefix || target == ErrMalformed
}
