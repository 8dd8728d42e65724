//go:build !linux

package loopfs

import (
	"testing"
	"time"
)

// FS is a mounted file system; there are none on this platform.
type FS struct{ Dir string }

// New skips the test: loop devices are a matter of Linux.
func New(t testing.TB, _ Options) *FS {
	lacking(t, "it needs Linux")
	return nil
}

// Cut is never reached.
func (*FS) Cut() {}

// Remount is never reached.
func (*FS) Remount() {}

// AbortJournal is never reached.
func (*FS) AbortJournal() {}

// GrowHolder is never reached.
func (*FS) GrowHolder(int) {}

// Freeze is never reached.
func (*FS) Freeze(time.Duration) (thaw func()) { return func() {} }

// Fill is never reached.
func (*FS) Fill(int64) (empty func()) { return func() {} }
