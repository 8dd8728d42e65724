package append

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Peer is a library that is measured beside the log.
type Peer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	What    string `json:"what"` // how it is used, in words
}

// The conversation with the program of perf/peers: it says hello, then answers each request with one
// line, and ends when its input does. perf/peers has the same types: it is a module of its own.
type (
	peerHello struct {
		Protocol int    `json:"protocol"`
		Peers    []Peer `json:"peers"`
	}
	peerRequest struct {
		Peer     string        `json:"peer"`
		Dir      string        `json:"dir"` // empty; the peer removes what it makes
		Cell     Cell          `json:"cell"`
		Warm     time.Duration `json:"warm_nanos"`
		Length   time.Duration `json:"length_nanos"`
		BytesMax int64         `json:"bytes_max"`
	}
	peerAnswer struct {
		Measure *Measure `json:"measure,omitempty"`
		Error   string   `json:"error,omitempty"`
	}
)

// peerProtocol is the version of the conversation.
const peerProtocol = 1

// peers is the program that runs them. A nil one has none.
type peers struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	hello peerHello
	only  []string
}

// startPeers starts the program and reads its greeting. It is killed when ctx ends.
func startPeers(ctx context.Context, program string, only []string) (*peers, error) {
	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peers{cmd: cmd, in: in, out: bufio.NewReader(out), only: only}
	err = p.read(&p.hello)
	if err == nil && p.hello.Protocol != peerProtocol {
		err = fmt.Errorf("%s speaks version %d, this program %d: build both from one tree", program, p.hello.Protocol, peerProtocol)
	}
	for _, name := range only {
		if err == nil && !slices.ContainsFunc(p.hello.Peers, func(q Peer) bool { return q.Name == name }) {
			err = fmt.Errorf("%s has no peer %q", program, name)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *peers) read(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the peers' program: %w", err)
	}
	return json.Unmarshal(line, v)
}

// names are the peers that run.
func (p *peers) names() []string {
	if p == nil {
		return nil
	}
	var out []string
	for _, q := range p.hello.Peers {
		if len(p.only) == 0 || slices.Contains(p.only, q.Name) {
			out = append(out, q.Name)
		}
	}
	return out
}

// run is one turn of a peer in a directory of its own below dir.
func (p *peers) run(ctx context.Context, name, dir string, c Cell, t turn) (m Measure, err error) {
	own, err := os.MkdirTemp(dir, "peer-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(own)) }()
	b, err := json.Marshal(peerRequest{Peer: name, Dir: own, Cell: c, Warm: t.warm, Length: t.length, BytesMax: t.bytesMax})
	if err != nil {
		return m, err
	}
	if _, err = p.in.Write(append(b, '\n')); err != nil {
		return m, errors.Join(ctx.Err(), err)
	}
	var a peerAnswer
	if err = p.read(&a); err != nil {
		return m, errors.Join(ctx.Err(), err)
	}
	if a.Error != "" || a.Measure == nil {
		return m, errors.New(a.Error)
	}
	return *a.Measure, nil
}

// close ends the program and waits for it.
func (p *peers) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.in.Close(), p.cmd.Wait())
}
