package ring

import (
	"errors"
	"fmt"
	"syscall"
)

// The kinds of engine that Open knows. KindAuto is URing where the kernel lets us, else Portable.
const (
	KindAuto = "auto"
	Portable = "portable"
	URing    = "uring"
)

// Options configure Open. The zero value is the default.
type Options struct {
	// Depth is the most operations in flight. Default 256.
	Depth int
	// Workers caps the threads that carry out operations. Default 16. The kernel keeps its workers
	// per thread that submits: with io_uring the cap holds for each thread on which Submit runs.
	Workers int
	// Dir is where the io_uring engine proves itself on a scratch file: the data directory.
	// Default: the system's directory for temporary files.
	Dir string
}

// Open returns the engine of the given kind. The second result says why KindAuto became Portable
// and is empty otherwise; whoever calls logs it, once (HZ-19). KindAuto falls back only when the
// kernel refuses io_uring (EPERM, ENOSYS, EINVAL, EOPNOTSUPP) or when the ring fails its proof;
// a lack of memory or descriptors is an error. URing by name never falls back.
func Open(kind string, o Options) (Engine, string, error) {
	switch kind {
	case Portable:
		e, err := OpenPortable(PortableOptions{Depth: o.Depth, Workers: o.Workers})
		return e, "", err
	case URing:
		e, err := OpenURing(URingOptions(o))
		return e, "", err
	case KindAuto, "":
		e, err := OpenURing(URingOptions(o))
		if err == nil {
			return e, "", nil
		}
		if _, ok := errors.AsType[refusedError](err); !ok {
			return nil, "", err
		}
		p, perr := OpenPortable(PortableOptions{Depth: o.Depth, Workers: o.Workers})
		return p, refusal(err), perr
	case "uring-direct":
		return nil, "", &Error{Op: "open engine", Path: kind, Class: ErrUnsupported,
			Err: fmt.Errorf("this build has no direct engine; use %s, %s or %s", KindAuto, URing, Portable)}
	}
	return nil, "", &Error{Op: "open engine", Path: kind, Class: ErrUnsupported,
		Err: fmt.Errorf("unknown engine; use %s, %s or %s", KindAuto, URing, Portable)}
}

// URingOptions configure OpenURing.
type URingOptions Options

// errUntrusted is the cause when a ring works but does not do what it should.
var errUntrusted = errors.New("the ring did not pass its proof")

// refusedError marks an error for which KindAuto falls back.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// refuse marks an error of the ring when it means that the kernel does not let us use io_uring,
// or not well enough.
func refuse(err error) error {
	for _, e := range []error{syscall.EPERM, syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP, errUntrusted} {
		if errors.Is(err, e) {
			return refusedError{err}
		}
	}
	return err
}

// refusal is the reason to log.
func refusal(err error) string {
	s := err.Error()
	if v := uringDisabled(); v != "" {
		s += " (kernel.io_uring_disabled = " + v + ")"
	}
	return s
}
