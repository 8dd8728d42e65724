package netio

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The size that the kernel gave is read back; one that is smaller than asked for is one warning per buffer
// that names the sysctl and its value (HZ-27).
func TestClampedSocketBufferIsReportedOnce(t *testing.T) {
	open := func(n int, force bool) (*udpSocket, string) {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		var log bytes.Buffer
		s := &udpSocket{UDPConn: c, lg: slog.New(slog.NewTextHandler(&log, nil))}
		if err := s.sizeBuffersWith(n, force); err != nil {
			t.Fatal(err)
		}
		return s, log.String()
	}
	s, log := open(128<<10, false)
	if st := s.stats(); st.ReceiveBuffer != 128<<10 || st.SendBuffer != 128<<10 || log != "" {
		t.Fatalf("%+v %q", st, log)
	}
	s, log = open(1<<29, false) // above any maximum
	st := s.stats()
	if st.ReceiveBuffer >= 1<<29 || st.ReceiveBuffer < 64<<10 || st.ReceiveBufferWanted != 1<<29 || st.SendBuffer >= 1<<29 {
		t.Fatalf("%+v", st)
	}
	for _, sysctl := range []string{"net.core.rmem_max", "net.core.wmem_max"} {
		if strings.Count(log, "sysctl="+sysctl+" sysctl_value="+readSysctl(sysctl)) != 1 {
			t.Fatalf("no single warning for %s:\n%s", sysctl, log)
		}
	}
	if readSysctl("net.core.none") != "unknown" {
		t.Fatal("an unknown sysctl has a value")
	}
	if unix.Geteuid() == 0 {
		if s, log := open(16<<20, true); s.stats().ReceiveBuffer != 16<<20 || log != "" {
			t.Fatalf("with permission: %+v %q", s.stats(), log)
		}
	}
}

func TestSegmentSizeIsFoundAmongControlMessages(t *testing.T) {
	msg := func(level, kind int32, n int) []byte {
		b := make([]byte, unix.CmsgSpace(n))
		h := unix.Cmsghdr{Level: level, Type: kind}
		h.SetLen(unix.CmsgLen(n))
		copyCmsghdr(b, &h)
		return b
	}
	seg := msg(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(seg[unix.CmsgLen(0):], 1252)
	tos := msg(unix.IPPROTO_IP, unix.IP_TOS, 1)
	info := msg(unix.IPPROTO_IP, unix.IP_PKTINFO, 12)
	at := len(info)
	for _, c := range []struct {
		oob  []byte
		want segment
	}{
		{nil, segment{}}, {tos, segment{}}, {slices.Concat(info, tos), segment{}},
		{seg, segment{1252, 0, len(seg)}},
		{slices.Concat(info, seg), segment{1252, at, at + len(seg)}},
		{slices.Concat(info, seg, tos), segment{1252, at, at + len(seg)}},
		{slices.Concat(info, seg[:unix.CmsgLen(2)]), segment{1252, at, at + unix.CmsgLen(2)}}, // the last one unpadded
		{seg[:8], segment{}}, {seg[:unix.CmsgLen(2)-1], segment{}},
		{make([]byte, 64), segment{}}, {bytes.Repeat([]byte{0xff}, 64), segment{}},
	} {
		if got := findSegment(c.oob); got != c.want {
			t.Errorf("%x: %+v, want %+v", c.oob, got, c.want)
		}
	}
}

// copyCmsghdr writes h as the kernel reads it.
func copyCmsghdr(b []byte, h *unix.Cmsghdr) {
	*(*unix.Cmsghdr)(unsafe.Pointer(&b[0])) = *h
}
