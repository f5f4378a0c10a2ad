package decide

import (
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Standing is the place of an operation in the queue as of its last reconcile. The queue may have admitted it since.
type Standing uint8

// The standings.
const (
	Outside Standing = iota
	Waiting
	Holding
	KeepsTurn // cannot start and keeps the turn for its key
	Arriving  // submitted, and no reconcile has placed it yet; it keeps the turn for its key
)

// StandingOf returns the standing that follows from the state of an operation, whose present one is now. An operation
// that waits or is admitted keeps its standing while it is queued: its admission decides. shares means that an optional
// step uses its places.
func StandingOf(o Snapshot, now Standing, shares bool, key string, order queue.KeyOrder) Standing {
	turn := KeepsTurn
	if key == "" || order == queue.AnyOrder {
		turn = Outside
	}
	switch {
	case o.State == statefs.Queued && !o.Working:
		if now == Waiting || now == Holding || now == turn {
			return now
		}
		if order == queue.ByPriority { // while it waits for its parents it has no turn: they may use the same key
			return Outside
		}
		return turn
	case o.State == statefs.Running, o.Working, shares:
		return Holding
	case o.State == statefs.Trailing:
		return Outside
	}
	return turn
}
