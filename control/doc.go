// Package control serves a storage directory over HTTP: it submits, streams, controls and lists operations.
//
//	request ─▶ control/front ─▶ handler ──Submit, Request──▶ files ◀── daemon
//	           guard, limits,      │                            │
//	           table of routes     └──── stream ◀── follower ◀──┘
//	           problem+json              woken by the hub: by the daemon, and by one watch for all logs
//
// # Source of truth
//
// The directory is the source of truth. This package and the daemon communicate through files: control submits and
// writes requests through statefs.Tree, and reads records, markers and logs. It never moves a marker.
//
// # Resources
//
// One table (routes.go) lists all routes: the router, /openapi.json and a test are built from it. Server only connects
// the resources to it: lists, starter, streams, actions, retries, bulks, retention, laneControl, scheduleList,
// outboxControl, eventStreams, figures, health and pages. They share viewer, which describes one operation, liveTable,
// which knows which operations are live, and awaiter, which waits for one. State that only the daemon holds in memory
// comes through an interface that each declares beside its handlers; Daemon has one part of the daemon for each.
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	server    the routes, and what serves them       routes.go, server.go, ui.go
//	storage   lanes, deliveries, counts, health      lanes.go, schedules.go, outbox.go, outbox_action.go, metrics.go,
//	                                                 health.go
//	requests  start, change and delete operations    submit.go, action.go, stepaction.go, effect.go, retry.go,
//	                                                 retention.go, bulk.go
//	reads     lists, streams, files, events          list.go, stream.go, files.go, events.go
//	waiting   wakes the readers of an operation      hub.go, follow.go, wait.go
//	view      what is known of operations and jobs   operation.go, live.go, jobs.go, parameters.go, problem.go
//
// # Streams
//
// An open stream consists of the goroutine that net/http runs for its connection, an entry in the hub and an open log.
// It follows the files, so readers do not slow the work down, however many they are, and a slow reader costs no memory.
// Only the connection that started an operation can affect it by disconnecting (on_disconnect); all others only read.
//
// # What happens on failure
//
//   - Before the first byte, an error is answered as a problem (RFC 9457) with the member error; problem.go holds the
//     only mapping. Faults of the daemon are logged with a number, which the answer contains.
//   - After the first byte, a stream that fails ends without its footer. A missing footer means truncated.
//   - A panic ends its own request only.
//   - When the server stops, it refuses to start operations (503), ends text streams without a footer, and ends
//     server-sent events with a comment.
//   - When the watch on logs fails, Serve returns an error: readers would wait for ever.
package control
