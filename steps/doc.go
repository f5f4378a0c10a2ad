// Package steps says which step of an operation comes next. It is a vocabulary and arithmetic: no file, no clock, no goroutine.
//
//	pending ──start──▶ running ──done──▶ succeeded
//	   ▲  │                │ ├──retry_later──▶ failed_retryable ──start──▶ running
//	   │  ├──when, skip──▶ skipped
//	   │  └──approve──▶ succeeded (a gate without work)
//	   └──retry── failed_manual ◀──needs_person
//
// An operation whose job has steps runs the required ones one after another, in the order of [Graph.Order], and the optional ones beside and
// after them. The record of the operation is the authority for how far each step is: the daemon writes a change down, and has it durable,
// before anything acts on it. What follows from the statuses is [Graph.Main] and [Graph.Side], and nothing else is asked: an operation that is
// read back after a crash goes on where its statuses say.
package steps
