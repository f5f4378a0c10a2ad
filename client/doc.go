// Package client is the Go client of a jobdir daemon: it submits operations, follows their streams, and pauses, resumes
// and cancels them.
//
//	Submit ──POST /group/job──────────▶ daemon ──▶ Operation (durable when it is answered)
//	Follow ──GET  …/ID/stream?offset=N▶ daemon ──▶ log text to a Writer, then the Footer
//	Request ─POST …/ID/pause?wait=5s──▶ daemon ──▶ the same as creating ID.pause_requested
//
// What concerns steps, lanes and deliveries has types of its own: [Client.Steps], [Client.Lanes], [Client.Deliveries].
//
// A minimal program:
//
//	c, err := client.New("unix:/var/lib/jobdir/jobdir.sock")
//	op, err := c.Submit(ctx, "files", "checksum", map[string]string{"path": "."})
//	footer, err := c.Follow(ctx, op.ID, 0, os.Stdout)
//	fmt.Println(footer.Result)
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	storage     ended operations, deliveries, lanes  admin.go, events.go, history.go, lanes.go, outbox.go,
//	                                                 schedules.go, stats.go
//	jobs        read jobs, start operations          job.go, submit.go, submit_list.go
//	operations  read, follow and change operations   operation.go, follow.go, wait.go, request.go, retry.go,
//	                                                 steps.go, bulk.go
//	connection  send requests, reconnect, errors     client.go, address.go, error.go, reconnect.go
//
// # Source of truth
//
// The storage directory of the daemon is the source of truth. A Client has no cache, no session and no global state. It
// is safe for concurrent use, and several clients may use one daemon.
//
// # What happens on failure
//
// A refusal of the daemon is an *[Error] with the status and the message of its problem document (RFC 9457). If no
// daemon runs at the address, [Unreachable] reports true for the error. A stream that ends without its footer is a
// *[CutError] with the offset at which to continue; it does not affect the operation.
//
// Reads are retried automatically: after a restart of the daemon, a log continues at the byte where it was cut off.
// Changes are never retried: a submit without an answer may have been carried out.
package client
