// Package watch turns changes of a folder, or of many single files, into a coalesced signal to
// check them. It is the only package that imports fsnotify.
//
//	kernel queue ──► fsnotify ──Events──┐
//	(16,384 slots)            ──Errors──┤
//	                                    ├─► Run ──► set of keys, rescan flag ──Ready──► Take ──► consumer
//	scan tick (scan mode only) ─────────┘   one goroutine, no file I/O          cap 1
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	files   many single files, with subscribers  files.go, subscribe.go
//	folder  one folder                           dir.go, check.go, probe.go
//	events  what the kernel reports, merged      watcher.go, pending.go, options.go, fstype.go
//
// # What is authoritative
//
// The folder is. An event is a hint that a name may have changed, never a fact about it: events are
// merged, repeated, out of date or missing. A consumer takes keys, checks what exists, and acts on
// that. Taking the same key twice, or a key without a change, must be harmless. One thing is certain of the last
// event of a name: if it says that the name went ([Dir.Gone]), there is none, or another event is on its way.
//
// # Order
//
// [OpenDir] adds the watch before it returns, so list the folder after it: existing files are in
// the listing, and later changes cause events. List again whenever [Dir.Take] reports a rescan, and
// call [Dir.Check] before you rely on a listing or a missing name.
//
// # What happens on failure
//
//	queue overflow          counted; a rescan is reported; the watch stays and later events arrive
//	other watcher error     counted; a rescan is reported; too many in a row end Run with an error
//	no instance, no watch,  Mode is "scan" with the reason: Run reports a rescan every
//	probe event not seen    Options.ScanInterval
//	network or FUSE folder  Mode is "scan" too, because remote changes cause no events; the
//	                        local watch stays and reports local changes fast
//	folder removed, moved,  no event is reliable, especially while a descriptor is open;
//	mounted over, unmounted Dir.Check compares identities and returns *GoneError
//	followed file removed   its subscribers are woken once; the next Subscribe watches the new file
package watch
