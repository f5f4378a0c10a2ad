// Package schedule computes when a job is due from cron lines in a time zone, and tracks which of their times
// have been handled. It only computes: it reads no clock, starts nothing and writes nothing.
//
//	"0 3 * * *", "Europe/Berlin" ──Parse──▶ Spec ──Next──▶ nominal times, called slots
//	                                          │
//	      Handled, the handled slots ─────────┴──Due(now, missed)──▶ slots to fire, and the handled slots after that
//
// # Slots
//
// A slot is a nominal time of a line, whenever the job actually starts: each fires once, even if the clock is
// set, the daemon restarts, or an hour occurs twice. Handled slots are stored as ranges of nominal time
// (Handled). After a clock that was ahead is corrected, the slots between the ranges still fire, and slots
// that have fired do not fire again.
//
// # When the clocks change
//
// A slot in the skipped hour fires when that hour would have been over, moved by the amount of the change:
// 02:30 at 03:30. In an hour that occurs twice it fires only the first time, unless the line means every
// hour; then it fires each time.
package schedule
