package netio

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// benchPair is a connection over loopback, both ends in this process.
func benchPair(b *testing.B) (client, server Conn) {
	tt := newTestTLS(b)
	return tt.pair(b, tt.listen(b, nil), nil)
}

// cpu is what this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFrames sends frames one way on one stream, gathered into writes as a feeder or an ack writer
// gathers them, and reads them with a FrameReader. CPU is of both ends.
func BenchmarkFrames(b *testing.B) {
	for _, c := range []struct{ size, perWrite int }{{300, 1}, {300, 16}, {300, 200}, {4 << 10, 1}, {4 << 10, 16}, {64 << 10, 1}, {256 << 10, 1}} {
		b.Run(fmt.Sprintf("size=%d/gather=%d", c.size, c.perWrite), func(b *testing.B) {
			client, server := benchPair(b)
			out, err := client.OpenUniStream(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			chunk := bytes.Repeat(frame(wire.FlagPublish, pattern(c.size)), c.perWrite)
			if _, err := out.Write(chunk); err != nil {
				b.Fatal(err)
			}
			in, err := server.AcceptUniStream(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			fr := NewFrameReader(in, wire.NewPool(64<<20))
			fr.SetMax(wire.MaxFrameBytes)
			// The reader counts what is still to come; the first chunk is the warm-up.
			read := func(n int) error {
				for range n {
					_, buf, err := fr.Next()
					if err != nil {
						return err
					}
					buf.Release()
				}
				return nil
			}
			if err := read(c.perWrite); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(chunk)))
			start := cpu()
			b.ResetTimer()
			done := make(chan error, 1)
			go func(chunks int) { done <- read(chunks * c.perWrite) }(b.N)
			for range b.N {
				if _, err := out.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			used := cpu() - start
			b.ReportMetric(used.Seconds()/(float64(b.N)*float64(len(chunk))/1e9), "cpu-s/GB")
			b.ReportMetric(float64(b.N*c.perWrite)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// BenchmarkRoundTrip is one small frame out and one back.
func BenchmarkRoundTrip(b *testing.B) {
	client, server := benchPair(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	pool := wire.NewPool(1 << 20)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		st, err := server.AcceptStream(ctx)
		if err != nil {
			return
		}
		defer st.Close()
		defer st.CancelRead(ResetNone)
		answer := frame(wire.FlagAck, pattern(32))
		for fr := NewFrameReader(st, pool); ; {
			_, buf, err := fr.Next()
			if err != nil {
				return
			}
			buf.Release()
			if _, err := st.Write(answer); err != nil {
				return
			}
		}
	}()
	st, err := client.OpenStream(ctx)
	if err != nil {
		b.Fatal(err)
	}
	fr := NewFrameReader(st, pool)
	request := frame(wire.FlagPublish, pattern(256))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := st.Write(request); err != nil {
			b.Fatal(err)
		}
		_, buf, err := fr.Next()
		if err != nil {
			b.Fatal(err)
		}
		buf.Release()
	}
	st.Close()
	st.CancelRead(ResetNone)
	<-ended
}

// endless repeats its bytes for ever, a packet's worth at a time.
type endless struct {
	data []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 1252)], e.data[e.at:])
	if e.at += n; e.at == len(e.data) {
		e.at = 0
	}
	return n, nil
}

// BenchmarkFrameReader is the cutting alone, from memory.
func BenchmarkFrameReader(b *testing.B) {
	for _, size := range []int{32, 300, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			fr := NewFrameReader(&endless{data: frame(wire.FlagPublish, pattern(size))}, wire.NewPool(64<<20))
			fr.SetMax(wire.MaxFrameBytes)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				_, buf, err := fr.Next()
				if err != nil {
					b.Fatal(err)
				}
				buf.Release()
			}
		})
	}
}

// BenchmarkSend is what the wrapped socket adds to a datagram.
func BenchmarkSend(b *testing.B) {
	sock, err := openSocket(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, 1<<20, false, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer sock.Close()
	to := sock.LocalAddr().(*net.UDPAddr)
	data := make([]byte, 1200)
	for name, send := range map[string]sendFunc{"wrapped": sock.WriteMsgUDP, "plain": sock.UDPConn.WriteMsgUDP} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := send(data, nil, to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
