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

// startUsage and endUsage read before and after what is measured; they stop the world for a moment, and
// what they allocate themselves lies outside.
func startUsage() usage {
	disk := diskBytes()
	u := memoryUsage()
	u.disk, u.cpu, u.at = disk, cpuTime(), time.Now()
	return u
}

func endUsage() usage {
	at, cpu := time.Now(), cpuTime()
	u := memoryUsage()
	u.at, u.cpu, u.disk = at, cpu, diskBytes()
	return u
}

func memoryUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{mallocs: m.Mallocs, bytes: m.TotalAlloc}
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
