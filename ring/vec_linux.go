// Hot path.

package ring

import "golang.org/x/sys/unix"

// appendIovecs describes vec without its first skip bytes to the kernel, in at most MaxVec
// entries and without empty ones. It returns the entries and how many bytes they cover. The
// entries are typed memory with real pointers: as long as they are reachable, so are the buffers.
func appendIovecs(dst []unix.Iovec, vec [][]byte, skip int64) ([]unix.Iovec, int64) {
	var covered int64
	for _, b := range vec {
		if skip >= int64(len(b)) {
			skip -= int64(len(b))
			continue
		}
		b = b[skip:]
		skip = 0
		if len(dst) == MaxVec {
			break
		}
		iov := unix.Iovec{Base: &b[0]}
		iov.SetLen(len(b))
		dst = append(dst, iov)
		covered += int64(len(b))
	}
	return dst, covered
}
