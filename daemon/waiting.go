package daemon

import (
	"maps"
	"sync"
	"time"

	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Waiting says why a live operation does not run; false: it does, or is not in hand.
func (d *Daemon) Waiting(id statefs.ID) (statefs.Waiting, bool) {
	if on, waits := d.chains.waitsFor(id); waits {
		return statefs.Waiting{Reason: statefs.WaitsForOthers, HeldBy: on.parent, Since: &on.since, NeedsPerson: d.personBehind(id)}, true
	}
	why, ok := d.admission.why(id)
	if !ok {
		return statefs.Waiting{}, false
	}
	out := waitingOf(why)
	if op := d.operation(id); op != nil && out.Reason == statefs.WaitsForKey {
		if row, ok := op.row.Load().(history.Packed); ok {
			if shown, err := row.Unpack(); err == nil {
				out.Key = shown.Key
			}
		}
	}
	if out.Reason == statefs.WaitsPausedLane {
		d.lanes.explain(&out)
	}
	if out.Reason == statefs.WaitsToStart && d.draining() {
		out.Reason = statefs.WaitsForNextDaemon
	}
	return out, true
}

// explain adds until when a lane is paused and why, by its own file or by that of all lanes, whichever lasts longer.
func (l *lanes) explain(why *statefs.Waiting) {
	paused := *l.paused.Load()
	hold, is := paused[why.Lane]
	if all, every := paused[statefs.AllLanes]; every && (!is || hold.Until != nil && (all.Until == nil || all.Until.After(*hold.Until))) {
		hold, is = all, true
	}
	if is {
		why.Until, why.Note = hold.Until, hold.Reason
	}
}

// reasons has the words of the queue in those of everybody else.
var reasons = map[queue.Reason]statefs.Reason{
	queue.UnknownLane: statefs.WaitsUnknownLane, queue.LanePaused: statefs.WaitsPausedLane, queue.LaneFull: statefs.WaitsForLane,
	queue.UnknownLimit: statefs.WaitsUnknownLimit, queue.Limit: statefs.WaitsForLimit, queue.Rate: statefs.WaitsForRate,
	queue.Key: statefs.WaitsForKey, queue.Starting: statefs.WaitsToStart,
}

func waitingOf(why queue.Waiting) statefs.Waiting {
	out := statefs.Waiting{
		Reason: reasons[why.Reason], HeldBy: why.HeldBy.Whole(), Lane: why.Lane, Limit: why.Limit, Position: why.Position,
	}
	if !why.Since.IsZero() {
		out.Since = &why.Since
	}
	if !why.Until.IsZero() {
		out.Until = &why.Until
	}
	return out
}

// waiters are the operations that somebody follows while they wait: their logs say why they do, each time that the reason changes. All others
// are asked when somebody wants to know, so that a change costs nothing for a hundred thousand that wait.
type waiters struct {
	mu    sync.Mutex
	said  map[statefs.ID]said
	wake  map[statefs.ID][]func() // of readers that have seen no log yet
	again *time.Timer             // the next comparison of all of them
}

// said is what was said last; positions and holders change too often to be news.
type said struct {
	reason statefs.Reason
	limit  string
	person statefs.ID
	note   string
	until  int64
}

func saidOf(why statefs.Waiting) said {
	s := said{reason: why.Reason, limit: why.Limit, person: why.NeedsPerson, note: why.Note}
	if why.Reason == statefs.WaitsPausedLane && why.Until != nil {
		s.until = why.Until.UnixNano()
	}
	return s
}

// compareEvery is the shortest time between two comparisons of what followed operations wait for with what was said.
const compareEvery = 100 * time.Millisecond

// Followed says that somebody reads the stream of an operation: if it waits, its log says why from now on. wake is called once when the log
// has the first line of that, since a log that was not there cannot be watched; it must not block.
func (d *Daemon) Followed(id statefs.ID, wake func()) {
	w := &d.waiters
	w.mu.Lock()
	if w.said == nil {
		w.said, w.wake = make(map[statefs.ID]said), make(map[statefs.ID][]func())
	}
	last, known := w.said[id]
	if !known {
		w.said[id] = said{}
	}
	if last == (said{}) {
		w.wake[id] = append(w.wake[id], wake)
	}
	w.mu.Unlock()
	if !known {
		d.looks.want(id)
	}
	if last != (said{}) {
		wake()
	}
}

func (w *waiters) forget(id statefs.ID) {
	w.mu.Lock()
	delete(w.said, id)
	delete(w.wake, id)
	w.mu.Unlock()
}

// waitingChanged has followed operations looked at soon that wait for another reason than before: the queue has changed.
func (d *Daemon) waitingChanged() {
	w := &d.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.said) == 0 || w.again != nil || d.stopping.Load() {
		return
	}
	w.again = time.AfterFunc(compareEvery, func() {
		w.mu.Lock()
		w.again = nil
		before := maps.Clone(w.said)
		w.mu.Unlock()
		for id, last := range before {
			if why, waits := d.Waiting(id); waits && saidOf(why) != last {
				d.looks.want(id)
			}
		}
	})
}

// sayWaiting has the log of a followed operation say why it waits, when that is news.
func (d *Daemon) sayWaiting(op *operation) {
	w := &d.waiters
	w.mu.Lock()
	last, followed := w.said[op.id()]
	w.mu.Unlock()
	if !followed {
		return
	}
	if !d.manages(op.id()) || op.state != statefs.Queued && op.state != statefs.Scheduled {
		w.forget(op.id())
		return
	}
	why, waits := d.Waiting(op.id())
	if op.state == statefs.Scheduled && op.rec.DueAt != nil {
		why, waits = statefs.Waiting{Reason: statefs.WaitsForTime, Until: op.rec.DueAt}, true
	}
	now := saidOf(why)
	if !waits || now == last || why.Reason == statefs.WaitsToStart {
		return
	}
	d.say(op, "  Waiting: "+why.Sentence()+".")
	w.mu.Lock()
	w.said[op.id()] = now
	readers := w.wake[op.id()]
	delete(w.wake, op.id())
	w.mu.Unlock()
	for _, wake := range readers {
		wake()
	}
	if last != (said{}) {
		d.tellWaiting(op.rec, why)
	}
}

// firstWait publishes why an operation does not start at once. A start does not repeat it for those that an earlier daemon has told of: a hundred
// thousand of them would drive everything else out of the event log.
func (d *Daemon) firstWait(op *operation) {
	if op.saidWaiting {
		return
	}
	if !isClosed(d.ready) && !d.isNews(op.rec) {
		op.saidWaiting = true
		return
	}
	if why, ok := d.Waiting(op.id()); ok && why.Reason != statefs.WaitsToStart {
		op.saidWaiting = true
		d.tellWaiting(op.rec, why)
	}
}

// tellWaiting publishes why an operation waits.
func (d *Daemon) tellWaiting(rec *statefs.Record, why statefs.Waiting) {
	e := eventOf(rec, events.WaitReason)
	e.Waiting = &why
	d.config.Events.Publish(e)
}

// close ends the timer.
func (w *waiters) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again != nil {
		w.again.Stop()
	}
}
