// Package events is the numbered log of everything that happens in a storage directory: transitions,
// progress, waiting reasons, lane changes and sweeps, for people and programs that subscribe instead of
// polling.
//
//	daemon ──Publish──▶ pending ──one goroutine──▶ events/N.ndjson, one line each     (segments, the oldest go first)
//	                                   │
//	                                   └──────────▶ ring of the newest ──▶ Reader ──▶ subscribers
//	                                                                         ▲
//	                                  segments, for a reader that is behind ─┘
//
// # Guarantees
//
// The log is derived data: the records in operations/ are authoritative, and programs that must learn of
// every end use the completion feed. Publish never blocks and never fails, so it costs the daemon next to
// nothing. A goroutine writes the log later and does not sync it while the daemon runs. So events may be
// missing after a crash, on a full disk, or when they arrive faster than they can be written. They are never
// missing silently: a subscriber gets an event of type gap in their place.
//
// # Numbers
//
// The number of an event is the ID from which a reader resumes. Numbers grow and are never reused, even after
// a crash that lost the end of the log: they come from blocks that are reserved on disk in advance
// (statefs.Numbers.ReserveEvents), and a log that was not closed properly continues after the block in use. If
// the disk is full when the log is opened, events wait in memory until a block can be reserved.
//
// # Readers
//
// A Reader has no buffer of its own that could overflow. It reads recent events from the ring and older ones
// from the segments, and gets a gap for events that the segments no longer contain. A slow or absent reader
// costs no memory. A server that disconnects a reader which accepts nothing for too long sends it the gap
// that Cut returns.
package events
