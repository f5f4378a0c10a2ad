// Package steps decides which step of an operation comes next. It contains only types and pure
// functions: no file, no clock, no goroutine.
//
//	pending ──start──▶ running ──done──▶ succeeded
//	   ▲  │                │ ├──retry_later──▶ failed_retryable ──start──▶ running
//	   │  ├──when, skip──▶ skipped
//	   │  └──approve──▶ succeeded (a gate without work)
//	   └──retry── failed_manual ◀──needs_person
//
// An operation whose job has steps runs the required ones one after another, in the order of
// [Graph.Order], and the optional ones in parallel with them and after them. The record of the
// operation is authoritative for the status of each step: the daemon records a change and makes it
// durable before it acts on it. [Graph.NextRequired] and [Graph.ReadyOptional] derive the next move
// from the statuses alone, so an operation that is read back after a crash continues where its
// statuses are.
package steps
