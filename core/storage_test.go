package core

import (
	"testing"
	"time"
)

// LOG-8: records and publishes per sync can be read off the broker's counters, which never fall: not even when the stream
// whose log counted them is deleted.
func TestStorageCountersOutliveTheirStream(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, Options{}.in(dir))
	st := stream(t, b, StreamDef{Durable: true})
	for range 3 {
		if res := publish(t, b, st, "a", "b"); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	check := func(when string) {
		t.Helper()
		s := b.Status().Storage
		if l := s.Logs; l.Entries != 3 || l.Records != 6 || l.Groups < 1 || l.Bytes == 0 {
			t.Errorf("%s: %d publishes, %d records, %d groups, %d bytes; want 3, 6", when, l.Entries, l.Records, l.Groups, l.Bytes)
		}
		if s.Unsynced != 0 {
			t.Errorf("%s: %d records without a sync under on_commit", when, s.Unsynced)
		}
		var groups uint64
		for _, n := range s.Logs.GroupEntries {
			groups += n
		}
		if groups == 0 || groups > s.Logs.Groups {
			t.Errorf("%s: %d groups have a size, %d were written", when, groups, s.Logs.Groups)
		}
		disk := b.Status().Executors[0].Disk
		var ops uint64
		for _, n := range disk.Counts {
			ops += n
		}
		if ops != b.Status().Executors[0].Ops || disk.Sum <= 0 || disk.Sum > time.Duration(ops)*waitMax {
			t.Errorf("%s: %d of %d operations have a time, %v together", when, ops, b.Status().Executors[0].Ops, disk.Sum)
		}
	}
	check("with the stream")
	if err := b.DeleteStream(t.Context(), "t", "n", "s"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log is let go", func() bool { return st.leaving.Load() == 0 })
	check("without it")
}
