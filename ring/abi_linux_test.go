package ring

import (
	"reflect"
	"testing"
)

func TestStructsHaveTheKernelsSizes(t *testing.T) {
	for _, c := range []struct {
		v    any
		want uintptr
	}{
		{sqe{}, 64}, {cqe{}, 16}, {sqOffsets{}, 40}, {cqOffsets{}, 40}, {uringParams{}, 120},
		{probeOp{}, 8}, {uringProbe{}, 16 + 64*8}, {getEventsArg{}, 24}, {timespec{}, 16},
	} {
		if got := reflect.TypeOf(c.v).Size(); got != c.want {
			t.Errorf("%T has %d bytes, the kernel's has %d", c.v, got, c.want)
		}
	}
}
