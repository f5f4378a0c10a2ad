// Package control is the HTTP face of a storage directory: it starts operations, streams them, passes requests on and lists.
//
//	request ─▶ guard ─▶ limits ─▶ table of routes ─▶ handler ──Submit, Request──▶ files ◀── daemon
//	            421      414       404, 405            │                            │
//	            401 403  431 413   501                 └──── stream ◀── follower ◀──┘
//	            every refusal is a problem+json              woken by the hub: one watch on jobs/, one for all logs
//
// # Who is the authority
//
// The directory is. This package meets the daemon on disk: it submits and requests through statefs.Tree and reads records,
// markers and logs; it never moves a marker. What only the daemon knows comes through the interface Status. One table (routes.go)
// says what there is: it registers the routes, writes /openapi.json and is walked by a test.
//
// # Streams
//
// An open stream is the goroutine that net/http has for its connection, an entry in the hub and an open log. It follows the
// files, so any number of readers cost the work nothing and a slow one costs no memory. The connection that started an operation
// may end it by leaving (on_disconnect); all others only read.
//
// # What happens on failure
//
//   - Before the first byte an error is a problem (RFC 9457) with the member error, by the one mapping in problem.go. What is the
//     daemon's own fault is logged with a number that the answer names.
//   - After the first byte a stream that cannot go on ends without its footer, which tells every reader that it was cut off.
//   - A panic ends its own request only.
//   - When the server stops, starting is refused (503), text streams end without a footer, server-sent events with a comment.
//   - When events of jobs/ cannot be had any more, Serve returns an error: readers would wait for ever.
package control
