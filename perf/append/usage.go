package append

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"
)

// usage is what the process has used up to a moment.
type usage struct {
	at      time.Time
	cpu     time.Duration // user and system time of all threads
	mallocs uint64
	bytes   uint64 // allocated
	disk    int64  // bytes that the process caused to be sent to disks; -1 = not known
}

// readUsage stops the world for a moment: not within what is measured.
func readUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{at: time.Now(), cpu: cpuTime(), mallocs: m.Mallocs, bytes: m.TotalAlloc, disk: diskBytes()}
}

// diskBytes is write_bytes of /proc/self/io. Journals are written by a thread of the kernel and not in it.
func diskBytes() int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if v, ok := bytes.CutPrefix(s.Bytes(), []byte("write_bytes: ")); ok {
			n, err := strconv.ParseInt(string(v), 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}
