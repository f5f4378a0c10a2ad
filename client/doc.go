// Package client talks to a jobdir daemon: it submits operations, follows their streams, and asks for pause, resume and
// cancel.
//
//	Submit ──POST /group/job──────────▶ daemon ──▶ Operation (durable when it is answered)
//	Follow ──GET  …/ID/stream?offset=N▶ daemon ──▶ log text to a Writer, then the Footer
//	Request ─POST …/ID/pause?wait=5s──▶ daemon ──▶ the same as creating ID.pause_requested
//
// A minimal program:
//
//	c, err := client.New("unix:/var/lib/jobdir/jobdir.sock")
//	op, err := c.Submit(ctx, "files", "checksum", map[string]string{"path": "."})
//	footer, err := c.Follow(ctx, op.ID, 0, os.Stdout)
//	fmt.Println(footer.Result)
//
// # Who is the authority
//
// The storage directory of the daemon. A Client keeps nothing: no cache, no session, no global state. It is safe for
// concurrent use, and several may talk to one daemon.
//
// # What happens on failure
//
// A refusal of the daemon is an *[Error] with the status and the message of its problem document (RFC 9457). No daemon at
// the address is an error for which [Unreachable] reports true. A stream that ends without its footer is a *[CutError],
// which says where to go on; it says nothing about the operation, which lives on.
//
// Reading is tried again by itself: a daemon that is restarted is waited for, and a log goes on at the byte where it was cut off.
// Nothing that changes something is: a submit that was cut off may have been carried out.
package client
