package netio

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// quic-go finds the out-of-band methods through the wrapper: segmentation offload is on at both ends, and
// sends do carry a segment size and ECN marks.
func TestOffloadStaysOnThroughTheWrapper(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv("QUIC_GO_DISABLE_GSO") != "" {
		t.Skip("segmentation offload is not to be had here")
	}
	tt := newTestTLS(t)
	var segmented, marked atomic.Uint64
	s := tt.listenSend(t, nil, func(direct sendFunc, b, oob []byte, addr *net.UDPAddr) (int, int, error) {
		if findSegment(oob).len > 0 {
			segmented.Add(1)
		}
		if bytes.Contains(oob, []byte{syscall.IPPROTO_IP, 0, 0, 0, syscall.IP_TOS, 0, 0, 0}) {
			marked.Add(1)
		}
		return direct(b, oob, addr)
	})
	client, server := tt.pair(t, s, nil)
	for _, c := range []Conn{client, server} {
		if !c.(*quicConn).c.ConnectionState().GSO {
			t.Fatal("quic-go turned segmentation offload off")
		}
	}
	transfer(t, server, client, 1<<20)
	if segmented.Load() == 0 || marked.Load() == 0 {
		t.Fatalf("%d segmented sends, %d with an ECN mark", segmented.Load(), marked.Load())
	}
	if st := s.Stats().Socket; !st.GSO || st.GSOErrors != 0 || st.SendErrors != 0 {
		t.Fatalf("%+v", st)
	}
}

// listenSend is listen with send in the place of the socket's own call.
func (tt testTLS) listenSend(t *testing.T, change func(*ServerOptions),
	send func(direct sendFunc, b, oob []byte, addr *net.UDPAddr) (int, int, error)) *Server {
	t.Helper()
	return tt.listen(t, func(o *ServerOptions) {
		if change != nil {
			change(o)
		}
		o.wrapSend = func(direct sendFunc) sendFunc {
			return func(b, oob []byte, addr *net.UDPAddr) (int, int, error) { return send(direct, b, oob, addr) }
		}
	})
}

// logText collects a log that is written on other goroutines.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// transfer sends n bytes one way and checks them.
func transfer(t *testing.T, from, to Conn, n int) {
	t.Helper()
	out, err := from.OpenUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data := pattern(n)
	var wg sync.WaitGroup
	wg.Go(func() {
		out.SetWriteDeadline(time.Now().Add(30 * time.Second))
		out.Write(data)
		out.Close()
	})
	defer wg.Wait()
	in, err := to.AcceptUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.SetReadDeadline(time.Now().Add(30 * time.Second))
	got, err := readAll(in)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", len(got), n, err)
	}
}

// A device that refuses segmented sends, from the start or after a while, with either errno: everything
// arrives, the offload is off for that socket, and no later connection tries it again (HZ-28).
func TestRefusedOffloadIsTurnedOffAndNothingIsLost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no segmentation offload here")
	}
	tt := newTestTLS(t)
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EINVAL} {
		for _, after := range []int64{0, 5} {
			var log logText
			var left, refused atomic.Int64
			left.Store(after)
			s := tt.listenSend(t, func(o *ServerOptions) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
				func(direct sendFunc, b, oob []byte, addr *net.UDPAddr) (int, int, error) {
					if findSegment(oob).len > 0 && left.Add(-1) < 0 {
						refused.Add(1)
						return 0, 0, &net.OpError{Op: "write", Err: os.NewSyscallError("sendmsg", errno)}
					}
					return direct(b, oob, addr)
				})
			client, server := tt.pair(t, s, nil)
			transfer(t, server, client, 1<<20)
			transfer(t, client, server, 1<<20)
			tried := refused.Load()
			client2, server2 := tt.pair(t, s, nil)
			transfer(t, server2, client2, 1<<20)
			st := s.Stats().Socket
			if st.GSO || st.GSOErrors == 0 || st.GSOErrors != uint64(tried) || refused.Load() != tried || st.SendErrors != 0 {
				t.Fatalf("%v after %d: tried %d, then %d; %+v", errno, after, tried, refused.Load(), st)
			}
			if n := strings.Count(log.String(), "offload"); n != 1 {
				t.Fatalf("reported %d times:\n%s", n, log.String())
			}
		}
	}
}

// The switch turns it off from the start: no segmented send is tried.
func TestOffloadCanBeTurnedOff(t *testing.T) {
	tt := newTestTLS(t)
	var segmented atomic.Uint64
	s := tt.listenSend(t, func(o *ServerOptions) { o.DisableGSO = true },
		func(direct sendFunc, b, oob []byte, addr *net.UDPAddr) (int, int, error) {
			if findSegment(oob).len > 0 {
				segmented.Add(1)
			}
			return direct(b, oob, addr)
		})
	client, server := tt.pair(t, s, nil)
	transfer(t, server, client, 1<<20)
	if s.Stats().Socket.GSO || segmented.Load() != 0 {
		t.Fatalf("still on, %d segmented sends", segmented.Load())
	}
}

// Errors of single datagrams, of every kind and often, end no connection: they are packet loss and counted
// (HZ-29).
func TestFailedSendsAreLossAndEndNoConnection(t *testing.T) {
	tt := newTestTLS(t)
	errnos := []syscall.Errno{syscall.ENOBUFS, syscall.EPERM, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN,
		syscall.ECONNREFUSED, syscall.EINVAL, syscall.ENOMEM, syscall.EAGAIN}
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	fails := 0
	s := tt.listenSend(t, nil, func(direct sendFunc, b, oob []byte, addr *net.UDPAddr) (int, int, error) {
		mu.Lock()
		fail := rnd.IntN(40) == 0
		if fail {
			fails++
		}
		errno := errnos[fails%len(errnos)]
		mu.Unlock()
		if fail {
			return 0, 0, &net.OpError{Op: "write", Err: os.NewSyscallError("sendmsg", errno)}
		}
		return direct(b, oob, addr)
	})
	client, server := tt.pair(t, s, nil)
	for range 4 {
		transfer(t, server, client, 1<<20)
		transfer(t, client, server, 256<<10)
	}
	if server.Context().Err() != nil || client.Context().Err() != nil {
		t.Fatal("a connection ended")
	}
	if st := s.Stats().Socket; st.SendErrors == 0 {
		t.Fatalf("not counted: %+v", st)
	}
}

// Only these go up to quic-go: it needs the first two, and knows what to do with the third.
func TestFatalSendErrorsGoUp(t *testing.T) {
	sock, err := openSocket(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, 1<<20, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	to := sock.LocalAddr().(*net.UDPAddr)
	sock.send = func([]byte, []byte, *net.UDPAddr) (int, int, error) {
		return 0, 0, &net.OpError{Op: "write", Err: os.NewSyscallError("sendmsg", syscall.EMSGSIZE)}
	}
	if _, _, err := sock.WriteMsgUDP(make([]byte, 10), nil, to); !errors.Is(err, syscall.EMSGSIZE) {
		t.Fatal(err)
	}
	sock.send = sock.UDPConn.WriteMsgUDP
	sock.Close()
	if _, _, err := sock.WriteMsgUDP(make([]byte, 10), nil, to); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// Opening a socket and sending costs no allocation of ours per datagram.
func TestSendingADatagramDoesNotAllocate(t *testing.T) {
	lg := slog.New(slog.DiscardHandler)
	sock, err := openSocket(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, 1<<20, false, lg)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	to := sock.LocalAddr().(*net.UDPAddr)
	b := make([]byte, 1200)
	base := testing.AllocsPerRun(100, func() { sock.UDPConn.WriteMsgUDP(b, nil, to) })
	if ours := testing.AllocsPerRun(100, func() { sock.WriteMsgUDP(b, nil, to) }); ours > base {
		t.Fatalf("%v allocations, %v without us", ours, base)
	}
}

// Datagrams that the kernel drops for want of room are counted (HZ-27).
func TestKernelDropsAreCounted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the host does not tell")
	}
	sock, err := openSocket(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, 4096, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	to := sock.LocalAddr().(*net.UDPAddr)
	if n := sock.stats().ReceiveDrops; n != 0 {
		t.Fatal(n)
	}
	for range 100 {
		sock.WriteMsgUDP(make([]byte, 1200), nil, to)
	}
	if n := sock.stats().ReceiveDrops; n == 0 || n > 100 {
		t.Fatalf("%d drops", n)
	}
}

// With the buffers of an untuned host everything still arrives (HZ-27).
func TestSmallSocketBuffersLoseNothing(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	for _, set := range []func(int) error{s.sock.SetReadBuffer, s.sock.SetWriteBuffer} {
		if err := set(106_496); err != nil { // 212 992 after doubling: the usual default maximum
			t.Fatal(err)
		}
	}
	client, server := tt.pair(t, s, nil)
	transfer(t, client, server, 4<<20)
	transfer(t, server, client, 4<<20)
}
