//go:build !linux

package netio

// sizeBuffers asks for n bytes in each direction. These hosts are not asked what they gave.
func (s *udpSocket) sizeBuffers(n int) error {
	s.recvBuf, s.sendBuf = bufferSize{wanted: n}, bufferSize{wanted: n}
	if s.SetReadBuffer(n) == nil {
		s.recvBuf.got = n
	}
	if s.SetWriteBuffer(n) == nil {
		s.sendBuf.got = n
	}
	return nil
}

func (s *udpSocket) receiveDrops() uint64 { return 0 }

// findSegment: only Linux has segmentation offload here.
func findSegment([]byte) segment { return segment{} }
