// Package ringtest is the file layer and the engine as a test wants them: told to fail, to stop
// halfway, to wait, to lie, or to complete in a chosen order.
//
//	code under test -> ringtest.FS -> ring.OS() or crashfs    rules decide call by call
//	code under test -> ringtest.Engine                        the test ends each operation
//
// A file of FS has no descriptor (Fd is ^0), so that every engine goes through its methods and
// meets the rules. Nothing here has expectations of its own: the test reads Calls and asserts.
// FS and Engine are safe for concurrent use and start no goroutine.
package ringtest
