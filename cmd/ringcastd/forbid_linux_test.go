package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/ringcast/ringcast/ring/ringtest"
)

// forbidArg makes this test binary forbid io_uring in its process and become the program behind it.
const forbidArg = "forbid-io_uring"

// forbidIOURing returns what to put in front of a command so that it runs under a filter that
// answers the io_uring calls with EPERM, as container runtimes do (T7).
func forbidIOURing(t *testing.T) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, forbidArg}
}

// becomeForbidden does not return if the arguments ask for it.
func becomeForbidden() {
	if len(os.Args) < 3 || os.Args[1] != forbidArg {
		return
	}
	err := ringtest.ForbidIOURing(syscall.EPERM)
	if err == nil {
		err = syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, forbidArg+":", err)
	os.Exit(1)
}
