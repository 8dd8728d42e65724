package ring

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// The kinds of engine that Open knows. KindAuto is the first of autoOrder that the system lets us
// have.
const (
	KindAuto    = "auto"
	Portable    = "portable"     // pwritev and fdatasync on threads
	URing       = "uring"        // io_uring, a write linked to its sync
	URingDirect = "uring-direct" // io_uring, one direct write that is its own sync
)

// autoOrder is what KindAuto tries, the best first. docs/decisions has the measurements behind it.
var autoOrder = [...]string{URingDirect, URing, Portable}

// Options configure Open. The zero value is the default.
type Options struct {
	// Depth is the most operations in flight. Default 256.
	Depth int
	// Workers caps the threads that carry out operations. Default 16. The kernel keeps its workers
	// per thread that submits: with io_uring the cap holds for each thread on which Submit runs.
	Workers int
	// Dir is where the io_uring engines prove themselves on a scratch file: the data directory.
	// Default: the system's directory for temporary files.
	Dir string
}

// Open returns the engine of the given kind. The second result says why KindAuto did not become
// the kinds it tried before, and is empty when it became the first; whoever calls logs it, once
// (HZ-19). KindAuto goes on to the next kind only when the kernel refuses io_uring (EPERM, ENOSYS,
// EINVAL, EOPNOTSUPP), when the ring fails its proof, or when the file system refuses direct writes
// or has no room to prove them; a lack of memory or descriptors is an error. A kind by name is that
// kind or an error.
func Open(kind string, o Options) (Engine, string, error) {
	switch kind {
	case Portable, URing, URingDirect:
		e, err := openKind(kind, o, false)
		return e, "", err
	case KindAuto, "":
		return openFirst(autoOrder[:], o)
	}
	return nil, "", &Error{Op: "open engine", Path: kind, Class: ErrUnsupported,
		Err: fmt.Errorf("unknown engine; use %s, %s, %s or %s", KindAuto, Portable, URing, URingDirect)}
}

// openFirst opens the first of kinds that is not refused, and says what refused those before it.
func openFirst(kinds []string, o Options) (e Engine, reason string, err error) {
	var reasons []string
	for i, kind := range kinds {
		e, err = openKind(kind, o, true)
		if _, refused := errors.AsType[refusedError](err); !refused || i == len(kinds)-1 {
			break
		}
		if r := refusal(err); !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	if err != nil {
		return nil, "", err
	}
	return e, strings.Join(reasons, "; "), nil
}

func openKind(kind string, o Options, mustProve bool) (Engine, error) {
	if kind == Portable {
		return OpenPortable(PortableOptions{Depth: o.Depth, Workers: o.Workers})
	}
	return OpenURing(URingOptions{Depth: o.Depth, Workers: o.Workers, Dir: o.Dir, Direct: kind == URingDirect, MustProve: mustProve})
}

// URingOptions configure OpenURing: those of Options, and two.
type URingOptions struct {
	Depth, Workers int
	Dir            string
	// Direct makes it the engine for OpWriteDirect.
	Direct bool
	// MustProve refuses Direct also where the disk is too full, or read-only, for the proof.
	MustProve bool
}

// errUntrusted is the cause when a ring works but does not do what it should.
var errUntrusted = errors.New("the ring did not pass its proof")

// isNoRoom says that a disk is full or read-only: it proves nothing against an engine.
func isNoRoom(err error) bool { return errors.Is(err, ErrNoSpace) || errors.Is(err, ErrReadOnly) }

// errNoDirect is the cause when a file system does not take direct writes as we make them.
var errNoDirect = errors.New("no direct writes of 4096 bytes here")

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
	if v := uringDisabled(); v != "" && !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, errNoDirect) && !isNoRoom(err) {
		s += " (kernel.io_uring_disabled = " + v + ")"
	}
	return s
}
