// Package events is the log of what happens in a storage directory: every transition, progress, waiting reason, lane change and
// sweep, numbered, for people and programs that want to be told instead of asking.
//
//	daemon ──Publish──▶ pending ──one goroutine──▶ events/N.ndjson, one line each     (segments, the oldest go first)
//	                                   │
//	                                   └──────────▶ ring of the newest ──▶ Reader ──▶ who follows
//	                                                                         ▲
//	                                  segments, for a reader that is behind ─┘
//
// # What it is, and what it is not
//
// It is derived: the records in operations/ are what counts, and whoever must learn of every end uses the completion feed. Publish
// never blocks and never fails, so that telling costs the daemon next to nothing; the log is written behind it and never synced while
// the daemon runs. So events may be missing after a crash, on a full disk, or when more happens than can be written. They are never
// missing silently: whoever follows gets an event of type gap in their place.
//
// # Numbers
//
// The number of an event is the id by which a reader goes on. Numbers grow and are never used twice, also not after a crash that took
// the end of the log: they come from blocks that are reserved on the disk before (statefs.Owner.ReserveEvents), and a log that was not
// closed in order goes on behind the block in use.
//
// # Readers
//
// A Reader has no buffer of its own that could overflow. It reads from the ring what is new, from the segments what it was too slow
// for, and gets a gap for what those no longer have. A reader that is slow or gone costs memory nothing and the daemon nothing. Who serves
// one that takes nothing at all for too long lets it go with the gap that Cut returns.
package events
