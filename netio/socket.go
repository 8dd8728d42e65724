// Hot path.

package netio

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// udpSocket is the UDP socket under a quic-go transport. It embeds *net.UDPConn, so that quic-go
// finds the out-of-band methods and keeps GSO, ECN and batched reads on (a socket without them loses
// all three silently), and overrides the one call through which every datagram leaves:
//
//   - an error that a datagram can cause (no buffer, no route, a firewall) is a lost packet and a
//     counter, as on any network; quic-go alone would end the connection (HZ-29);
//   - segmentation offload that the kernel offers and a device then refuses is off for this socket
//     after the first refusal: runs of datagrams are cut here and sent singly, those of the refused call
//     too (HZ-28). quic-go has a fallback of its own, for EIO alone and with a data race in it; it never
//     sees the error.
type udpSocket struct {
	*net.UDPConn
	lg   *slog.Logger
	send sendFunc // UDPConn.WriteMsgUDP; tests put failures in its place

	recvBuf, sendBuf bufferSize

	gsoOff     atomic.Bool   // segmented sends are refused here; set at open or by the first failure
	gsoErrors  atomic.Uint64 // segmented sends that the kernel or a device refused
	sendErrors atomic.Uint64 // datagrams (or segmented runs) that were lost in a failed send
}

type sendFunc func(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error)

// bufferSize is one of a socket's two buffers, in the unit of the request.
type bufferSize struct{ wanted, got int }

// SocketStats describes a UDP socket.
type SocketStats struct {
	// Buffer sizes in bytes: asked for, and what the kernel gave.
	ReceiveBufferWanted, ReceiveBuffer int
	SendBufferWanted, SendBuffer       int
	// ReceiveDrops counts datagrams that the kernel dropped because the receive buffer was full; 0
	// where the host does not tell.
	ReceiveDrops uint64
	// SendErrors counts sends that failed and were treated as packet loss.
	SendErrors uint64
	// GSO is off from the start or after GSOErrors (at most a few) segmented sends failed.
	GSO       bool
	GSOErrors uint64
}

// openSocket binds a UDP socket (addr nil: any port, either family) and sizes its buffers.
func openSocket(addr *net.UDPAddr, bufferLen int, disableGSO bool, lg *slog.Logger) (*udpSocket, error) {
	c, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	s := &udpSocket{UDPConn: c, lg: lg, send: c.WriteMsgUDP}
	s.gsoOff.Store(disableGSO)
	if err := s.sizeBuffers(bufferLen); err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

func (s *udpSocket) stats() SocketStats {
	return SocketStats{
		ReceiveBufferWanted: s.recvBuf.wanted,
		ReceiveBuffer:       s.recvBuf.got,
		SendBufferWanted:    s.sendBuf.wanted,
		SendBuffer:          s.sendBuf.got,
		ReceiveDrops:        s.receiveDrops(),
		SendErrors:          s.sendErrors.Load(),
		GSO:                 !s.gsoOff.Load(),
		GSOErrors:           s.gsoErrors.Load(),
	}
}

// WriteMsgUDP sends one datagram, or several of equal size when oob carries a segment size.
func (s *udpSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if s.gsoOff.Load() {
		if segment := findSegment(oob); segment.len > 0 {
			return s.sendSingly(b, oob, segment, addr)
		}
	}
	n, oobn, err = s.send(b, oob, addr)
	if err == nil {
		return n, oobn, nil
	}
	return s.sendFailed(b, oob, addr, err)
}

// sendFailed decides what a failed send means. Only a closed socket is fatal. "Too long" goes up: the
// path MTU search lives on it.
func (s *udpSocket) sendFailed(b, oob []byte, addr *net.UDPAddr, err error) (int, int, error) {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EMSGSIZE) {
		return 0, 0, err
	}
	switch {
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EINVAL):
		if segment := findSegment(oob); segment.len > 0 {
			s.gsoErrors.Add(1)
			if s.gsoOff.CompareAndSwap(false, true) {
				s.lg.Warn("segmentation offload refused by the network device, sending singly", "err", err)
			}
			return s.sendSingly(b, oob, segment, addr)
		}
		if len(oob) > 0 { // a control message (ECN mark, source address) that this kernel or route does not take
			if n, _, again := s.send(b, nil, addr); again == nil {
				return n, len(oob), nil
			}
		}
	case errors.Is(err, syscall.EPERM):
		// Now and then the first send of a socket fails so and the second does not.
		if n, oobn, again := s.send(b, oob, addr); again == nil {
			return n, oobn, nil
		}
	}
	s.sendErrors.Add(1)
	return len(b), len(oob), nil
}

// segment is the control message that asks the kernel to cut data into datagrams of len bytes; it lies in
// oob[from:to]. The zero value: there is none.
type segment struct{ len, from, to int }

// sendSingly sends a run of datagrams one by one, with the other control messages on each.
func (s *udpSocket) sendSingly(b, oob []byte, seg segment, addr *net.UDPAddr) (int, int, error) {
	rest := append(append(make([]byte, 0, 128), oob[:seg.from]...), oob[seg.to:]...)
	sent := 0
	for sent < len(b) {
		n := min(seg.len, len(b)-sent)
		if _, _, err := s.send(b[sent:sent+n], rest, addr); err != nil {
			if _, _, err = s.sendFailed(b[sent:sent+n], rest, addr, err); err != nil {
				return sent, 0, err
			}
		}
		sent += n
	}
	return sent, len(oob), nil
}

// quietOnce guards the environment switch below.
var quietOnce sync.Once

// quietQUIC keeps quic-go from logging the buffer size through the log package: the same was just
// said through the injected logger. The environment is its only switch.
func quietQUIC() {
	quietOnce.Do(func() { os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") })
}
