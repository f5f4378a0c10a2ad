// Package tally counts: how many operations are in which state in which lane, how long they waited, and how long they worked. It is what
// /api/v1/stats says, without looking at any operation for it.
//
//	daemon ── Counter.Move, when a state changes ─────▶ Tally ── States, O(states) ──▶ how many are queued?
//	       └─ Waited, Worked, when one ends ──▶   │
//	                                              └───── Lanes ──▶ counts and percentiles of each lane
//
// It is memory and arithmetic alone: no file, no clock of its own, no goroutine. Counts are exact, of what the daemon has in hand.
// Percentiles are estimates (Window) of what happened in the last ten to twenty minutes, and begin anew with the daemon: nothing is
// read from the history for them.
package tally
