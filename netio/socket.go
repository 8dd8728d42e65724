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
//     after the first refusal (HZ-28). quic-go understands EIO on a segmented send: it sends the
//     datagrams of that call singly and stops segmenting for that connection.
type udpSocket struct {
	*net.UDPConn
	lg *slog.Logger

	recvBuf, sendBuf bufferSize

	gsoOff     atomic.Bool   // segmented sends are refused here; set at open or by the first failure
	gsoErrors  atomic.Uint64 // segmented sends that the kernel or a device refused
	sendErrors atomic.Uint64 // datagrams (or segmented runs) that were lost in a failed send
}

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
	s := &udpSocket{UDPConn: c, lg: lg}
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
	if s.gsoOff.Load() && isSegmented(oob) {
		return 0, 0, errSegmented
	}
	n, oobn, err = s.UDPConn.WriteMsgUDP(b, oob, addr)
	if err == nil {
		return n, oobn, nil
	}
	return s.sendFailed(b, oob, addr, err)
}

// errSegmented is how quic-go is told to send singly.
var errSegmented error = os.NewSyscallError("sendmsg", syscall.EIO)

// sendFailed decides what a failed send means. Only a closed socket is fatal. "Too long" goes up: the
// path MTU search lives on it.
func (s *udpSocket) sendFailed(b, oob []byte, addr *net.UDPAddr, err error) (int, int, error) {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EMSGSIZE) {
		return 0, 0, err
	}
	if isSegmented(oob) && (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL)) {
		s.gsoErrors.Add(1)
		if s.gsoOff.CompareAndSwap(false, true) {
			s.lg.Warn("segmentation offload refused by the network device, sending singly", "err", err)
		}
		return 0, 0, errSegmented
	}
	switch {
	case errors.Is(err, syscall.EPERM):
		// Now and then the first send of a socket fails so and the second does not.
		if n, oobn, again := s.UDPConn.WriteMsgUDP(b, oob, addr); again == nil {
			return n, oobn, nil
		}
	case errors.Is(err, syscall.EINVAL) && len(oob) > 0:
		// A control message (ECN mark, source address) that this kernel or route does not take.
		if n, _, again := s.UDPConn.WriteMsgUDP(b, nil, addr); again == nil {
			return n, len(oob), nil
		}
	}
	s.sendErrors.Add(1)
	return len(b), len(oob), nil
}

// quietOnce guards the environment switch below.
var quietOnce sync.Once

// quietQUIC keeps quic-go from logging the buffer size through the log package: the same was just
// said through the injected logger. The environment is its only switch.
func quietQUIC() {
	quietOnce.Do(func() { os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") })
}
