package daemon

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that started it ends, so that a
// test that is killed leaves no broker behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
