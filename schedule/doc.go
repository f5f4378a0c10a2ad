// Package schedule says when a job is due: cron lines in a time zone, and which of their times have been dealt with. It is arithmetic
// alone: it asks no clock, starts nothing and writes nothing.
//
//	"0 3 * * *", "Europe/Berlin" ──Parse──▶ Spec ──Next──▶ nominal times, called slots
//	                                          │
//	      Handled, the slots dealt with ──────┴──Due(now, missed)──▶ slots to fire, and what is dealt with then
//
// # Slots
//
// A slot is the nominal time that a line means, whenever it is carried out: each fires once, also when the clock is set, the daemon is
// started anew, or an hour comes twice. What was dealt with is kept as ranges of nominal time (Handled), so that a clock that was ahead for a
// while and is set right again finds the slots in between still to come, and those that fired not again.
//
// # When the clocks change
//
// In the hour that does not exist a slot fires when that hour would have been over, moved by what the clocks were put forward: 02:30 at
// 03:30. In the hour that comes twice it fires the first time only, unless the line means every hour: that fires each time.
package schedule
