// Package backup copies a storage while a daemon may change it.
//
// The copy has every operation that was answered before the copying began, in its state of that moment or later, and a
// daemon that starts on it finds no state that a crash could not have left. Two things make that true.
//
//	state          where it is                     how it is copied
//	─────          ───────────                     ────────────────
//	a change       the journal, then the files     the journal is followed from before the first file is read until after
//	                                               the last: a start replays it over whatever the files have (Mirror)
//	a change       the files alone                 a record is read between two equal looks for its marker: both are of
//	                                               one moment
//	a request      jobs/, then taken/, then both   in this order, so that none slips past; before the records
//	a number       storage.json                    last: no number of the copy is given out again
//
// The journal is followed, and not copied first and last: under load a checkpoint has its segments used again every few
// seconds, and a copy that takes longer would always lack the changes in between. A copy of the segments, once they are
// closed, needs neither a lock nor a request to the daemon. If one is missed all the same, Read of the copy finds the
// gap, and everything is copied again.
//
// What belongs to one use of the journal, or to none, ends with it. If a daemon begins or ends a use while the storage
// is copied, storage.json is different at the end, and everything is copied again.
package backup
