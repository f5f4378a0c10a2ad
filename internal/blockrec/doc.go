// Package blockrec is a block device for tests: it records every write and every flush in order, and computes
// what a disk with a volatile cache may contain after a power failure at any point.
//
//	program under test      kernel                               this package
//	──────────────────      ──────────────────────────────       ─────────────────────────────────────────
//	write, fsync, rename ──▶ ext4, xfs, btrfs ──▶ loop ──FUSE──▶ Disk ──▶ ops: write, write, flush, zero ...
//	                                                               ▲                 │ any prefix of it
//	                                                               │                 ▼
//	                         journal replay, at the mount ◀── NewDisk ◀── Image ◀── Replay
//
// Package faultfs models what file systems keep; here real file systems decide that, with their journals,
// their barriers and their recovery at a mount. Only the disk is modelled: a flush makes everything durable
// that was written before it; of later writes, any subset survives, in whole blocks of 4096 bytes. So writes
// may be reordered: a later one may survive without an earlier one. The order of writes to the same block is
// kept, because a cache holds one version of a block.
//
// The device is a loop device on the one file of a FUSE file system which this process serves. Loop hands a flush,
// and the second half of a write with forced unit access, on as fsync of that file, and discards as holes punched
// into it. Both stay in memory, so that a state costs what differs from the one before.
//
// It needs root, /dev/fuse and loop devices; if one is missing, the error wraps ErrCannotAttach and names it.
// The kernel releases the loop device with its last user. If this process is killed, every operation of the
// disk fails; its mounts have to be unmounted manually.
//
// Only tests use it.
package blockrec
