// Package counts counts how many operations are in which state in which lane, how long they waited, and how
// long they ran. It serves /api/v1/stats without reading any operation.
//
//	daemon ── Move, when a state changes ─────────────▶ Counters ── States, O(states) ──▶ how many are queued?
//	       └─ AddWait, AddRun ────────────────────────▶    │
//	                                                       └─────── Lanes ──▶ counts and percentiles of each lane
//
// It works in memory only: no files, clock or goroutines. Counts are exact for the operations that the daemon
// knows. Percentiles are estimates (Window) over the last ten to twenty minutes and start empty with the
// daemon: nothing is read from the history.
package counts
