package sched

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// masked is what a process that was started with a CPU mask found out.
type masked struct {
	Usable []int
	// Placed are the CPUs of 1, 2, ... executors; Ran those that each found itself on while it stepped.
	Placed [][]int
	Ran    [][][]int
	Pinned [][]bool
}

// maskedArg makes the test below the process that is looked at.
const maskedArg = "masked"

// TestExecutorsStayInTheProcessMask: a process that was started on some CPUs uses no other, pins at most
// one executor less than it has CPUs, never on the first, and runs any larger number unpinned. Tried as
// taskset would, with a process of its own for each mask.
func TestExecutorsStayInTheProcessMask(t *testing.T) { // HZ-45, HZ-46
	if slices.Contains(os.Args, maskedArg) {
		reportMasked(t)
		return
	}
	all, err := affinity()
	if err != nil {
		t.Fatal(err)
	}
	masks := [][]int{{all[0]}, {all[len(all)-1]}, all}
	if len(all) > 2 {
		masks = append(masks, []int{all[0], all[2]})
	}
	for _, mask := range masks {
		got := runMasked(t, mask)
		if len(got.Usable) == 0 || len(got.Usable) > len(mask) || !contained(got.Usable, mask) {
			t.Fatalf("mask %v: usable are %v", mask, got.Usable)
		}
		for i, placed := range got.Placed {
			n := i + 1
			pin := n < len(got.Usable)
			for e, cpu := range placed {
				ran := got.Ran[i][e]
				switch {
				case pin && (cpu != got.Usable[1+e] || !slices.Equal(ran, []int{cpu}) || !got.Pinned[i][e]):
					t.Errorf("mask %v: executor %d of %d was to run on %d, ran on %v, pinned %t", mask, e, n, cpu, ran, got.Pinned[i][e])
				case !pin && (cpu != -1 || !slices.Equal(ran, mask) || got.Pinned[i][e]):
					t.Errorf("mask %v: executor %d of %d was to run anywhere (%d), ran on %v, pinned %t", mask, e, n, cpu, ran, got.Pinned[i][e])
				}
			}
		}
	}
}

func contained(part, whole []int) bool {
	return !slices.ContainsFunc(part, func(c int) bool { return !slices.Contains(whole, c) })
}

// runMasked runs this test in a process that may use only those CPUs: a child starts with the mask of
// the thread that made it.
func runMasked(t *testing.T, mask []int) masked {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestExecutorsStayInTheProcessMask$", "-test.v", maskedArg)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return len(kv) > 11 && kv[:11] == "GOMAXPROCS=" })
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out

	started := make(chan error)
	go func() { // locked and never unlocked: the thread ends with its changed mask
		runtime.LockOSThread()
		set := unix.NewCPUSet(slices.Max(mask) + 1)
		for _, cpu := range mask {
			set.Set(cpu)
		}
		err := unix.SchedSetaffinityDynamic(0, set)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("mask %v: %v\n%s", mask, err, &out)
	}
	lines := bufio.NewScanner(&out)
	for lines.Scan() {
		var m masked
		if json.Unmarshal(lines.Bytes(), &m) == nil && m.Usable != nil {
			return m
		}
	}
	t.Fatalf("mask %v: no report in\n%s", mask, &out)
	return masked{}
}

// reportMasked is the child: it runs 1, 2, ... executors where PlaceExecutors puts them and prints where
// they found themselves.
func reportMasked(t *testing.T) {
	m := masked{Usable: UsableCPUs()}
	for n := 1; n <= len(m.Usable)+2; n++ {
		placed := PlaceExecutors(n, m.Usable)
		ran, pinned := make([][]int, n), make([]bool, n)
		for i, cpu := range placed {
			seen := make(chan []int, 1)
			e := NewExecutor(ExecutorOptions{Shard: i, CPU: cpu}, stepFunc(func(int64) (bool, int64) {
				cpus, _ := affinity()
				select {
				case seen <- cpus:
				default:
				}
				return false, 0
			}))
			stop := start(t, e)
			ran[i] = <-seen
			stop()
			pinned[i] = e.Stats().Pinned
		}
		m.Placed, m.Ran, m.Pinned = append(m.Placed, placed), append(m.Ran, ran), append(m.Pinned, pinned)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.Write(append(append([]byte("\n"), text...), '\n'))
}
