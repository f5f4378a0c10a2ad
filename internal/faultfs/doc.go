// Package faultfs is a disk for tests: a file system in memory that writes down every change, forgets what was not synced when
// the power is cut, and fails the k-th operation of a kind on demand.
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
// The journal is the authority: the content of the disk is what applying all of it gives, and an Image is what applying a part of
// it gives. Three models say which part survives a cut, from the promises of POSIX and from how journalling file systems work.
//
//   - Strict: a file has the content of its last fsync, a folder the names of its last fsync. Nothing else is there. A rename
//     between two folders is durable when the one that it left is synced; when only the other one is, both names are there. That is
//     what btrfs does, seen on a copy of its disk; ext4 and xfs keep more.
//   - Ordered: names change in order and a sync of anything makes all earlier ones durable, as on ext4, xfs and btrfs with a log;
//     content is there when it was synced, else the file is empty.
//   - Subset: beside what Strict keeps, any subset of the changes that were not synced, each by itself.
//
// Nothing is simulated about the program: it is the real binary on a real mount. Mounting needs root (the mount is made directly,
// without a helper program) and /dev/fuse. Mount says what is missing otherwise. A process that hangs in a call to a disk whose
// server is gone cannot be killed, so Close answers what is under way before it unmounts.
//
// Only tests use it.
package faultfs
