package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// Every error that a person meets says what to do, in both forms.
func TestErrorsSayWhatToDo(t *testing.T) {
	dial := func(err error) error { return &client.DialError{Addr: "h:1", Attempts: 3, Err: err} }
	cases := []error{
		usageError(errors.New("unknown flag --x")),
		errInterrupted,
		errNoToken,
		dial(netio.ErrHandshakeTimeout),
		fmt.Errorf("%w: %w", context.DeadlineExceeded, dial(netio.ErrRefused)),
		dial(&netio.HandshakeError{Alert: 42, Err: errors.New("certificate signed by unknown authority")}),
		dial(wire.NewError(wire.CodeUnauthenticated, "auth failed")),
		wire.ErrForbidden,
		wire.NewError(wire.CodeNotFound, "stream not found: dev/default/x"),
		wire.ErrOverloaded.WithReason("publish_queue_full", 10),
		wire.ErrUnacknowledged.WithCause(netio.ErrIdleTimeout),
		wire.ErrStorage,
		&wire.Error{CodeText: "out_of_cheese", Message: "redo", Retry: wire.RetryFatal},
		fmt.Errorf("%w, last: %w", client.ErrDeliveryTimeout, wire.ErrUnavailable),
		&client.GapError{Stream: "s", From: 3, Next: 9, Reason: "too_old"},
		&client.UnsupportedError{What: "counters"},
		&adminUnreachable{"http://h:1", errors.New("connection refused")},
		context.DeadlineExceeded,
		&fs.PathError{Op: "open", Path: "f", Err: fs.ErrNotExist},
		&noDataDir{"data"},
		&noSuchLog{`no log of a stream "x" in data`},
		&damaged{1, 1},
		&damaged{2, 3},
		&notConfirmed{},
		fmt.Errorf("core: lock data directory data: %w", ring.Classify("lock", "data/LOCK", ring.ErrLocked)),
		fmt.Errorf("%w: 7.seg: the file belongs to log 9", log.ErrForeign),
		fmt.Errorf("%w: 7.seg, byte 0: segment of unknown version 2", log.ErrNewer),
		&log.CorruptError{Dir: "d", Segment: 1, Pos: 4096, What: "zeros"},
		fmt.Errorf("log: backup of 1.seg: %w", ring.Classify("write", "d", syscall.ENOSPC)),
		ring.Classify("open", "d", syscall.EACCES),
		errors.New("something else"),
	}
	var out strings.Builder
	for _, err := range cases {
		for _, asJSON := range []bool{false, true} {
			var stderr bytes.Buffer
			env := &environment{stderr: &stderr, json: asJSON}
			code := env.fail(err)
			if asJSON {
				var r report
				if json.Unmarshal(stderr.Bytes(), &r) != nil || r.Error.Message == "" || r.Error.Code == "" {
					t.Errorf("%v: %s", err, &stderr)
				}
				fmt.Fprintf(&out, "%s", &stderr)
			} else {
				fmt.Fprintf(&out, "-- exit %d\n%s", code, &stderr)
			}
		}
	}
	golden(t, "errors.txt", out.String())
}
