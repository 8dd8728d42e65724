package ring

import "unsafe"

// DirectAlign is what offset, length and memory of a direct write are multiples of. It suits every
// disk: what a disk asks for is at most its block.
const DirectAlign = 4096

// AlignedBytes returns n zero bytes of memory for direct writes. It is the garbage collector's,
// which does not move it.
func AlignedBytes(n int) []byte {
	b := make([]byte, n+DirectAlign)
	skip := -int(address(b)) & (DirectAlign - 1)
	return b[skip : skip+n : skip+n]
}

// IsAligned says whether b may be written at off by a direct write.
func IsAligned(b []byte, off int64) bool {
	return off%DirectAlign == 0 && len(b)%DirectAlign == 0 && address(b)%DirectAlign == 0
}

// joinAligned is what vec holds, as one piece.
func joinAligned(vec [][]byte) []byte {
	all := AlignedBytes(int(vecLen(vec)))
	rest := all
	for _, b := range vec {
		rest = rest[copy(rest, b):]
	}
	return all
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
