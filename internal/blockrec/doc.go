// Package blockrec is a block device for tests: it writes down every write and every flush in order, and says what a disk with a
// volatile cache may hold when the power goes at any point of that.
//
//	program under test      kernel                               this package
//	──────────────────      ──────────────────────────────       ─────────────────────────────────────────
//	write, fsync, rename ──▶ ext4, xfs, btrfs ──▶ loop ──FUSE──▶ Disk ──▶ ops: write, write, flush, zero ...
//	                                                               ▲                 │ any prefix of it
//	                                                               │                 ▼
//	                         journal replay, at the mount ◀── NewDisk ◀── Image ◀── Replay
//
// Package faultfs models what file systems keep; here real ones decide that, with their journals, their barriers and what they do by
// themselves at a mount. What is modelled is only the disk: a flush makes everything durable that was written before it; of what was
// written since, any subset is there, in blocks of 4096 bytes, each whole. That is how writes come to be out of order: a later one is
// there and an earlier one is not. For the same block the order is kept, as a cache holds one version of it.
//
// The device is a loop device on the one file of a FUSE file system which this process serves. Loop hands a flush, and the second
// half of a write with forced unit access, on as fsync of that file, and discards as holes punched into it. Both stay in memory, so
// that a state costs what differs from the one before.
//
// It needs root, /dev/fuse and loop devices; what is missing is said by an error that wraps ErrCannotAttach. The kernel clears the loop
// device with its last user. When this process is killed the disk fails all that is asked of it; mounts on it are left to be unmounted.
//
// Only tests use it.
package blockrec
