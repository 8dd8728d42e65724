package client

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"
)

// spread chooses among the client ports of a broker with several listeners, each of which is one
// receive loop. The choice follows a seed of this client: with one per process all its clients would
// meet at the same listener. Used by one attempt to connect at a time.
type spread struct {
	seed uint32
	// at is the port that the client has moved to, 0 = none: then it begins at its address.
	at uint16
	// muted are ports that did not answer though the address did.
	muted []uint16
	// timeout bounds the attempt at a chosen port.
	timeout time.Duration
}

func newSpread() spread { return spread{seed: rand.Uint32()} }

// current is the port to begin with, 0 = the client's address.
func (s *spread) current() uint16 { return s.at }

// choose takes one of the announced ports and returns it if the client has to move there, 0 if not.
// An address whose own port is not among them leads through something that maps ports, and the others
// cannot be dialled.
func (s *spread) choose(addr string, announced []uint16) uint16 {
	s.at = 0
	_, text, err := net.SplitHostPort(addr)
	own, _ := strconv.ParseUint(text, 10, 16)
	if err != nil || !slices.Contains(announced, uint16(own)) {
		return 0
	}
	ports := slices.DeleteFunc(slices.Clone(announced), func(p uint16) bool { return slices.Contains(s.muted, p) })
	if len(ports) == 0 {
		return 0
	}
	port := ports[s.seed%uint32(len(ports))]
	if port == uint16(own) {
		return 0
	}
	s.at = port
	return port
}

// mute gives up a port that does not answer.
func (s *spread) mute(port uint16) {
	s.at = 0
	s.muted = append(s.muted, port)
}

// forgive takes back what was held against ports while nobody answered anywhere.
func (s *spread) forgive() { s.muted = nil }
