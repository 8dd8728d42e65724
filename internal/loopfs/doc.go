// Package loopfs makes small real file systems for tests: an ext4 image in a sparse file, mounted
// through a loop device, that can be filled, cut off as a power cut does, turned read-only by an
// aborted journal, frozen, or run out of the memory behind it (hazards.md T3 to T6 and T15).
//
//	New -> sweep what dead runs left -> image -> mkfs.ext4 -> mount -o loop     Dir
//	Cut (shutdown ioctl) ... Remount                what was synced is there, the rest is not
//	AbortJournal, Freeze, Fill, and a Holder that is smaller than the image
//	end of the test -> unmount, remove
//
// Who owns what. A file system belongs to its test, whose end unmounts and removes it, also when it
// failed. What a killed test left is recognised by the name of its directory, which holds the id of
// the process, and taken down by the next New of any process.
//
// Goroutines: none. Processes: mkfs.ext4, mount and umount, and while a file system is frozen one
// that thaws it should the test die.
//
// What may fail: it needs Linux, root, loop devices and mkfs.ext4. Where one is missing the test is
// skipped with the reason, or fails when RINGCAST_LOOPFS=require.
//
// What it refuses to do: pretend. There is no fake file system to fall back to.
package loopfs
