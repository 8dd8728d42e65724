package netio

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sizeBuffers asks for n bytes in each direction, past the system's maximum where the process may,
// reads back what it got, and warns once per buffer that is smaller (HZ-27).
func (s *udpSocket) sizeBuffers(n int) error {
	return s.sizeBuffersWith(n, true)
}

func (s *udpSocket) sizeBuffersWith(n int, force bool) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		s.recvBuf, serr = sizeBuffer(int(fd), n, force, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE)
		if serr == nil {
			s.sendBuf, serr = sizeBuffer(int(fd), n, force, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE)
		}
	}); err != nil {
		return err
	}
	if serr != nil {
		return fmt.Errorf("socket buffer: %w", serr)
	}
	s.warnClamped("receive", s.recvBuf, "net.core.rmem_max")
	s.warnClamped("send", s.sendBuf, "net.core.wmem_max")
	return nil
}

// sizeBuffer returns sizes in the unit of the request: the kernel doubles what it is asked for, to
// account for its own bookkeeping, and reports the double.
func sizeBuffer(fd, n int, force bool, opt, optForce int) (bufferSize, error) {
	if !force || unix.SetsockoptInt(fd, unix.SOL_SOCKET, optForce, n) != nil {
		// No permission. This call clamps silently, and never fails for a size.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, n); err != nil {
			return bufferSize{}, os.NewSyscallError("setsockopt", err)
		}
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt)
	if err != nil {
		return bufferSize{}, os.NewSyscallError("getsockopt", err)
	}
	return bufferSize{wanted: n, got: got / 2}, nil
}

func (s *udpSocket) warnClamped(which string, size bufferSize, sysctl string) {
	if size.got >= size.wanted {
		return
	}
	quietQUIC()
	s.lg.Warn("udp socket buffer smaller than asked for, bursts will be dropped",
		"buffer", which, "wanted", size.wanted, "got", size.got, "sysctl", sysctl, "sysctl_value", readSysctl(sysctl))
}

func readSysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// receiveDrops reads the kernel's count for this socket.
func (s *udpSocket) receiveDrops() uint64 {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0
	}
	const drops = 8 // SK_MEMINFO_DROPS
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	var errno unix.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil || errno != 0 {
		return 0
	}
	return uint64(info[drops])
}

// findSegment looks for the segment size among control messages.
func findSegment(oob []byte) segment {
	for at := 0; len(oob)-at >= unix.SizeofCmsghdr; {
		msg := oob[at:]
		length := cmsgLen(msg)
		if length < unix.SizeofCmsghdr || length > len(msg) {
			return segment{}
		}
		next := min(unix.CmsgSpace(length-unix.CmsgLen(0)), len(msg))
		level := int32(binary.NativeEndian.Uint32(msg[unix.SizeofCmsghdr-8:]))
		kind := int32(binary.NativeEndian.Uint32(msg[unix.SizeofCmsghdr-4:]))
		if level == unix.IPPROTO_UDP && kind == unix.UDP_SEGMENT && length >= unix.CmsgLen(2) {
			return segment{len: int(binary.NativeEndian.Uint16(msg[unix.CmsgLen(0):])), from: at, to: at + next}
		}
		at += next
	}
	return segment{}
}

// cmsgLen reads the length word, which is as wide as a pointer.
func cmsgLen(oob []byte) int {
	if unix.SizeofCmsghdr == 12 {
		return int(binary.NativeEndian.Uint32(oob))
	}
	return int(binary.NativeEndian.Uint64(oob))
}
