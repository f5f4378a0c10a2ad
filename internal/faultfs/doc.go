// Package faultfs is a disk for tests: a file system in memory that records every change, loses unsynced data
// when the power is cut, and fails the k-th operation of a kind on demand.
//
//	program under test            this package
//	──────────────────            ─────────────────────────────────────────────
//	write, fsync, rename ──FUSE──▶ Disk ──▶ journal: create, write, sync, rename ...
//	                                │                     │ any prefix of it
//	        EIO, ENOSPC, EROFS ◀── Fault                  ▼
//	                                        Images: what a disk may hold after a power cut there
//	                                                      │
//	                            Materialise ◀── Image ────┴──▶ NewDisk: mounted again
//
// The journal is the authority: the content of the disk is the result of applying all of it, and an Image is
// the result of applying a part. Three models define which part survives a power cut, based on the promises
// of POSIX and on the behaviour of journalling file systems.
//
//   - Strict: a file has the content of its last fsync, a folder the names of its last fsync, and nothing else.
//     A rename between two folders is durable when the source folder is synced; if only the target is synced,
//     both names exist. That is what btrfs does, as observed on a copy of its disk; ext4 and xfs keep more.
//   - Ordered: names change in order, and a sync of anything makes all earlier names durable, as on ext4, xfs
//     and btrfs with a log; content exists if it was synced, otherwise the file is empty.
//   - Subset: in addition to what Strict keeps, any subset of the unsynced changes, each independently.
//
// The program is not simulated: it is the real binary on a real mount. Mounting needs root (the mount is made
// directly, without a helper program) and /dev/fuse; otherwise the error of Mount names what is missing. A
// process that hangs in a call to a disk whose server is gone cannot be killed, so Close answers pending
// calls before it unmounts.
//
// Only tests use it.
package faultfs
