// Package crashfs is a file layer in memory that forgets what was not synced, for tests that ask
// what a power cut leaves behind.
//
//	code under test -> FS -> node { now: what the process sees
//	                                disk: what was synced
//	                                in between: sectors and entries that may or may not arrive }
//	FS.Crash(seed) -> a new FS that holds disk, and of what lies in between what the seed says
//
// A cut can be placed in two ways. CutAt(n) lets the n-th operation begin and then turns the
// power off: it and everything after it fails. OnOp calls the test before each operation, which
// may take a Crash there: one run of a script then yields a crash at every operation.
//
// What may happen, and no more: data that Sync covered is there; of other data each 512-byte
// sector is there or is what it was; a length that was not synced is the old, the new or one in
// between; each change of a directory that SyncDir did not cover happened or not, a rename as a
// whole; the contents of a file and its name are independent. Removed files keep working for
// those who have them open. Locks end with the power.
//
// A write to a file of OpenDirect with sync is on disk when it returns, it and the length that it
// needs, and nothing else of the file; one that the cut hits is there by sectors, each new or what it
// was. What is not aligned is refused as a disk would.
//
// FS is safe for concurrent use and starts no goroutine. It counts no space and keeps no
// permissions; ringtest.FS around it scripts errors.
package crashfs
