// Package daemon decides which operations run, runs them, and repairs the storage directory after a crash.
//
//	statefs/watch ──events──▶ reconcile queue ──one at a time for each ID──▶ reconcile
//	                                                                         │ the views, in their order
//	               decide.Decide(snapshot, observation, env) ◀───────────────┤
//	                                │ one effect                             │
//	      ┌───────────────┬─────────┴─────────┬──────────────────┬───────────┤
//	   a marker       a request          work ended        a time came    a start
//	  markers.go     requests.go          finish.go          end.go         begin.go
//	      │               │                   │                  │           │
//	      └───────────────┴─────────┬─────────┴──────────────────┘           ▼
//	                                ▼                                  work.Run: a goroutine with a gate
//	              statefs.Owner: rename, sync, record             handler · command · command for each item
//
// # Layers
//
// The daemon is made of parts, each a type with fields of its own. A part calls only the parts below it, and
// newParts in daemon.go connects them. Each part has files of its own. The lines attempts, queues and
// operations are no parts: they have what several parts use. A file uses only its own line and the lines
// below it:
//
//	Daemon      starts and stops the parts             daemon.go
//	sweeper     the whole storage, at intervals        sweep.go
//	recovery    the storage at a start                 recover.go
//	retention   deletes ended operations               retention.go
//	reconciler  the files of one ID against memory     reconcile.go, adopt.go
//	decisions   observes, has it judged, acts          decisions.go, carry_out.go
//	requests    carries out requests                   requests.go, step_actions.go
//	finisher    the end of a run, and after it         finish.go
//	optional    optional steps                         optional_step.go
//	starts      begins runs                            begin.go, steps.go
//	ends        makes operations end                   end.go
//	attempts    which failures are retried, and when   attempts.go
//	markers     the names in jobs/                     markers.go, stray_files.go
//	waits       why operations wait                    waits.go
//	publisher   events                                 publish.go
//	core        transitions, their commit, deadlines   core.go, commit.go, deadlines.go
//	queues      what starts, what is reconciled next   admission.go, expected.go, reconcile_queue.go
//	operations  the operations, and what readers see   operation.go, live.go, config.go
//
// # The directory is the authority
//
// What the daemon knows of an operation is a copy of what it last read or wrote in the storage
// directory. A lost, repeated or reordered event is harmless, because each reconcile compares the copy
// with the directory again. For each ID at most one goroutine reconciles at a time, and only it makes
// transitions. The work runs beside it and only enqueues the operation: when the work has ended, and
// when a pause has taken effect.
//
// # Order of writes
//
// A pause first stops the work and then renames the marker. A resume first renames the marker and then
// lets the work continue. A start is durable before the work begins. An end is durable before the
// marker is removed. A request stays in taken/ until its effect is durable.
//
// # Failures
//
// A failed sync, EIO, a read-only file system, and a folder that was replaced, removed or unmounted
// end the daemon. No operation is cancelled; the next daemon continues from what is on disk. A full
// disk does not affect running work; the daemon retries the write. A missing marker cancels its
// operation only after a second check, some time later, during which no event arrived and no marker
// was found. Interrupted work returns to the queue and starts again with the next daemon, as the same
// operation with the next run number.
package daemon
