// Package watch turns changes of a folder, or of many single files, into a
// coalesced "look now". It is the only home of fsnotify.
//
//	kernel queue ──► fsnotify ──Events──┐
//	(16,384 slots)            ──Errors──┤
//	                                    ├─► Run ──► set of keys, rescan flag ──Ready──► Take ──► your look
//	scan tick (scan mode only) ─────────┘   one goroutine, no file I/O          cap 1
//
// # Who is authority
//
// The folder is. An event is a hint that a name is worth a look, never a fact
// about it: events arrive merged, repeated, out of date or not at all. A
// consumer takes keys, looks at what exists, and acts on that. Taking the
// same key twice, or a key of which nothing changed, must be harmless.
//
// # Order
//
// [OpenDir] adds the watch before it returns, so list the folder after it:
// whatever was there before is in the listing, whatever comes later is an
// event. List again whenever [Dir.Take] reports a rescan, and call
// [Dir.Check] before a listing or a missing name is believed.
//
// # What happens on failure
//
//	queue overflow          counted; a rescan is reported; the watch stays and later events arrive
//	other watcher error     counted; a rescan is reported; too many in a row end Run with an error
//	no instance, no watch,  Mode is "scan" with the reason: Run reports a rescan every
//	probe event not seen    Options.ScanInterval
//	network or FUSE folder  Mode is "scan" too, as changes made elsewhere are not seen; the
//	                        local watch is kept beside it and makes local changes fast
//	folder removed, moved,  no event can be relied on, least of all while a descriptor is held;
//	mounted over, unmounted Dir.Check compares identities and returns *GoneError
//	followed file removed   its subscribers are woken once; the next Subscribe watches the new file
//
// # Platforms
//
// Linux is the target. The package also builds for macOS, where fsnotify uses
// kqueue: one descriptor for each file of the folder and no overflow report.
// The table of network file systems, and the words that tell a mount from a
// replaced folder, are Linux only; elsewhere the probe alone decides.
package watch
