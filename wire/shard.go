// Hot path.

package wire

// Routing says how a key's hash becomes a shard. It is a property of a stream.
type Routing uint8

const (
	RoutingModulo   Routing = iota // the default
	RoutingJumpHash                // Lamping-Veach
)

var routingNames = []string{RoutingModulo: "modulo", RoutingJumpHash: "jump_hash"}

// String returns the name on the wire.
func (r Routing) String() string { return enumName(routingNames, uint8(r)) }

// ParseRouting reads the name on the wire.
func ParseRouting(name string) (Routing, bool) {
	n, ok := enumValue(routingNames, name)
	return Routing(n), ok
}

// ShardOf maps a routing key to one of shards shards. Client and broker must agree on it, so it
// is part of the protocol: no seed, the raw bytes of the key, and an empty key is a key.
func ShardOf(key []byte, hasKey bool, shards uint32, r Routing) uint32 {
	if shards <= 1 || !hasKey {
		return 0
	}
	h := mix64(fnv1a64(key))
	if r == RoutingJumpHash {
		return jump(h, shards)
	}
	return uint32(h % uint64(shards))
}

func fnv1a64(key []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range key {
		h ^= uint64(c)
		h *= 0x100000001b3
	}
	return h
}

// mix64 spreads what FNV leaves in the low bits of short keys.
func mix64(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	h ^= h >> 31
	return h
}

// jump is jump consistent hashing. The division comes before the multiplication and both are IEEE
// doubles: another order gives other shards.
func jump(k uint64, shards uint32) uint32 {
	b, j := int64(-1), int64(0)
	for j < int64(shards) {
		b = j
		k = k*2862933555777941757 + 1
		quotient := 2147483648.0 / float64((k>>33)+1)
		j = int64(float64(b+1) * quotient)
	}
	return uint32(b)
}
