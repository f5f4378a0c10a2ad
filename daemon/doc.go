// Package daemon decides what runs, runs it, and brings the storage directory back into order after anything.
//
//	statefs/watch ──"look now"──▶ looks ──one look at a time for each ID──▶ look
//	                                                                         │ what exists, against what is known
//	      ┌───────────────┬───────────────────┬──────────────────┬───────────┤
//	  marker gone     marker moved       request there       work ended   queued
//	  absent.go        look.go             asks.go           finish.go    begin.go
//	      │               │                   │                  │           │
//	      └───────────────┴─────────┬─────────┴──────────────────┘           ▼
//	                                ▼                                  run: a goroutine with a gate
//	              statefs.Owner: rename, sync, record             handler · command · command for each item
//
// # Who is the authority
//
// The folder is. What the daemon knows of an operation is a copy of what it last saw or did there, so a lost event, a repeated
// one or a wrong order changes nothing: each look compares again. One goroutine at a time looks at an operation and makes its
// transitions; the work itself runs beside that and only ever says "look at me": when it ended, and when a pause took effect.
//
// # Order
//
// A pause stops the work and then renames the marker; a resume renames and then lets the work go on; a start is durable before
// anything begins; an end is durable before the marker goes. A request stands in taken/ until its effect is durable.
//
// # When something fails
//
// A failed sync, EIO, a read-only file system and a folder that was replaced, unmounted or emptied end the daemon: nothing is
// cancelled, and the next start goes on from what is on disk. A full disk leaves what runs alone and is tried again. A marker
// that is missing cancels only after a second look, a while later, which heard and found nothing. Work that was interrupted goes
// back into the queue and starts again with the next daemon, as the same operation and with the next run number.
package daemon
