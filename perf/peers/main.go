// Command ringcast-peers runs what ringcast is compared with: the libraries that a Go engineer would
// pick for durable appends. It is a module of its own, so that nobody who uses ringcast carries them.
//
// It is started by `ringcast perf append` and talks JSON lines: it says hello, answers each request
// with one line, and ends when standard input does. The types are those of perf/append/peers.go.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// protocol is the version of the conversation.
const protocol = 1

// Peer is a library that is measured.
type Peer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	What    string `json:"what"`
}

type hello struct {
	Protocol int    `json:"protocol"`
	Peers    []Peer `json:"peers"`
}

// Cell is one load: Writers loops, each with one append of Bytes in flight, over Logs logs.
type Cell struct {
	Writers int    `json:"writers"`
	Logs    int    `json:"logs"`
	Bytes   int    `json:"bytes"`
	Fsync   string `json:"fsync"`
}

type request struct {
	Peer     string        `json:"peer"`
	Dir      string        `json:"dir"`
	Cell     Cell          `json:"cell"`
	Warm     time.Duration `json:"warm_nanos"`
	Length   time.Duration `json:"length_nanos"`
	BytesMax int64         `json:"bytes_max"`
}

// Measure is the outcome of one turn.
type Measure struct {
	Records      uint64        `json:"records"`
	Time         time.Duration `json:"nanos"`
	P50          time.Duration `json:"p50_nanos"`
	P99          time.Duration `json:"p99_nanos"`
	P999         time.Duration `json:"p999_nanos"`
	CPU          time.Duration `json:"cpu_nanos"`
	Allocs       uint64        `json:"allocs"`
	AllocBytes   uint64        `json:"alloc_bytes"`
	DiskBytes    int64         `json:"disk_bytes"`
	PayloadBytes uint64        `json:"payload_bytes"`
}

type answer struct {
	Measure *Measure `json:"measure,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ringcast-peers:", err)
		os.Exit(1)
	}
}

// serve answers requests until there are no more.
func serve(in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(hello{Protocol: protocol, Peers: list()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var a answer
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil {
			a.Measure, err = run(r)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// versions are those of the modules in this program.
func versions() map[string]string {
	out := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			out[m.Path] = m.Version
		}
	}
	return out
}
