package daemon

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/statefs"
)

// waiters are the operations of which somebody wants to know each reason for which they wait, and not the first alone. All others are asked when
// somebody wants to know, so that a change costs nothing for a hundred thousand that wait.
//
//	the queue has changed ──a while later──▶ compare ──another reason than was told──▶ look ──▶ an event, and a line of a log that is read
//
// Those are the ones that somebody follows, by their stream or by their events, and the ones that stand first in a lane or among their like.
type waiters struct {
	mu  sync.Mutex
	all map[statefs.ID]*followed
	// first are those of the second kind whose next look is to tell why they wait.
	first map[statefs.ID]struct{}

	compareFollowed, compareFirst *time.Timer // the next comparison; nil: none is to come
}

// followed is an operation that somebody follows, or that has been while it waited: its log does not repeat itself for who comes back.
type followed struct {
	streams, readers int         // of its stream, and of its events alone
	waits            bool        // it waits, as its last look saw
	said             fingerprint // of the reason that its log has
	wake             []*func()   // of readers of its stream that have seen no log yet
}

func (f *followed) lone() bool { return f.streams == 0 && f.readers == 0 }

// fingerprint tells reasons apart, without keeping them for all that wait. Positions and holders change too often to be news.
type fingerprint = uint64

// What else is known of the reason that was told.
const (
	untold      fingerprint = iota // in its present state it was told of none
	toldEarlier                    // by an earlier daemon
	firstPrint
)

var seed = maphash.MakeSeed()

func printOf(why *statefs.Waiting) fingerprint {
	var until int64
	if why.Reason == statefs.WaitsPausedLane && why.Until != nil {
		until = why.Until.UnixNano()
	}
	return max(firstPrint, maphash.Comparable(seed, struct {
		reason      statefs.Reason
		limit, note string
		person      statefs.ID
		until       int64
	}{why.Reason, why.Limit, why.Note, why.NeedsPerson, until}))
}

// The shortest time between two comparisons of why operations wait with what was told of them: the followed ones, and the first ones of all lanes.
const (
	compareEvery      = 100 * time.Millisecond
	compareFirstEvery = time.Second
)

// Followed says that somebody follows an operation, which need not be there, until leave is called: each reason for which it waits is an event. wake
// is of a reader of its stream, and nil for one of its events alone: only for the first the log says why it waits. It is called once when the log
// has a line of that, since a log that was not there cannot be watched; it must not block.
func (d *Daemon) Followed(id statefs.ID, wake func()) (leave func()) {
	w := &d.waiters
	w.mu.Lock()
	f := w.all[id]
	if f == nil {
		if w.all == nil {
			w.all = make(map[statefs.ID]*followed)
		}
		f = new(followed)
		w.all[id] = f
	}
	said := f.said != untold
	switch {
	case wake == nil:
		f.readers++
	case said:
		f.streams++
	default:
		f.streams++
		f.wake = append(f.wake, &wake)
	}
	w.mu.Unlock()
	if wake != nil && said {
		wake()
	}
	if d.operation(id) != nil { // else its first look is to come
		d.looks.want(id)
	}
	return sync.OnceFunc(func() { w.leave(id, wake == nil, &wake) })
}

func (w *waiters) leave(id statefs.ID, reader bool, wake *func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.all[id]
	if reader {
		f.readers--
	} else {
		f.streams--
		f.wake = slices.DeleteFunc(f.wake, func(other *func()) bool { return other == wake })
	}
	if f.lone() && f.said == untold {
		delete(w.all, id)
	}
}

// note says whether an operation waits. One that does not may wait again, and then its log says so again.
func (w *waiters) note(id statefs.ID, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.all[id]
	if f == nil {
		return
	}
	f.waits = waits
	if waits {
		return
	}
	f.said = untold
	if f.lone() {
		delete(w.all, id)
	}
}

// wanted returns whether it is to be told why an operation waits, and whether its log is to say it, which has said the last reason already.
func (w *waiters) wanted(id statefs.ID) (tell, say bool, said fingerprint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, tell = w.first[id]
	delete(w.first, id)
	if f := w.all[id]; f != nil {
		return true, f.streams > 0, f.said
	}
	return tell, false, untold
}

// tellWaiting tells of an operation that was looked at why it waits, when that is news: in an event the first reason of each operation, and each one
// of those that somebody wants to know of; in its log when its stream is read. A start does not repeat the first reason of those that an earlier
// daemon has told of: a hundred thousand of them would drive everything else out of the event log.
func (d *Daemon) tellWaiting(op *operation) {
	tell, say, said := d.waiters.wanted(op.id())
	if op.state == statefs.Queued && op.toldWhy.Load() == untold {
		if !isClosed(d.ready) && !d.isNews(op.rec) {
			op.toldWhy.Store(toldEarlier)
		} else {
			tell = true
		}
	}
	if !tell {
		return
	}
	why, waits := d.whyWaits(op)
	waits = waits && d.manages(op.id())
	d.waiters.note(op.id(), waits)
	if !waits || why.Reason == statefs.WaitsToStart {
		return
	}
	now := printOf(&why)
	if op.toldWhy.Swap(now) != now {
		e := eventOf(op.rec, events.WaitReason)
		e.Waiting = &why
		d.config.Events.Publish(e)
	}
	if say && said != now && op.state != statefs.FailedRetryable { // which the log has said already
		d.say(op, "  Waiting: "+why.Sentence()+".")
		d.waiters.hasSaid(op.id(), now)
	}
}

// hasSaid notes what the log says, and wakes those that wait for that.
func (w *waiters) hasSaid(id statefs.ID, now fingerprint) {
	w.mu.Lock()
	var readers []*func()
	if f := w.all[id]; f != nil {
		f.said = now
		readers, f.wake = f.wake, nil
	}
	w.mu.Unlock()
	for _, wake := range readers {
		(*wake)()
	}
}

// waitingChanged has operations looked at soon that wait for another reason than was told: the queue has changed.
func (d *Daemon) waitingChanged() {
	w := &d.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.stopping.Load() {
		return
	}
	if len(w.all) > 0 && w.compareFollowed == nil {
		w.compareFollowed = time.AfterFunc(compareEvery, d.lookAtFollowed)
	}
	if d.config.Events != nil && w.compareFirst == nil {
		w.compareFirst = time.AfterFunc(compareFirstEvery, d.lookAtFirst)
	}
}

// lookAtFollowed has the followed operations looked at of whose reason nobody was told, or their logs do not say it.
func (d *Daemon) lookAtFollowed() {
	w := &d.waiters
	w.mu.Lock()
	w.compareFollowed = nil
	said := make(map[statefs.ID]fingerprint) // untold: nobody reads the log
	for id, f := range w.all {
		if f.waits && !f.lone() {
			said[id] = untold
			if f.streams > 0 {
				said[id] = max(f.said, toldEarlier)
			}
		}
	}
	w.mu.Unlock()
	for id, said := range said {
		why, waits := d.Waiting(id)
		op := d.operation(id)
		if !waits || op == nil || why.Reason == statefs.WaitsToStart {
			continue
		}
		if now := printOf(&why); op.toldWhy.Load() != now || said != untold && said != now {
			d.looks.want(id)
		}
	}
}

// lookAtFirst has the operations looked at that stand first and wait for another reason than was told. What an earlier daemon has told of them is
// not known, and no reason to tell of it again.
func (d *Daemon) lookAtFirst() {
	w := &d.waiters
	w.mu.Lock()
	w.compareFirst = nil
	w.mu.Unlock()
	if !isClosed(d.ready) {
		return
	}
	for _, id := range d.admission.first() {
		id = id.Whole()
		why, waits := d.Waiting(id)
		op := d.operation(id)
		if !waits || op == nil || why.Reason == statefs.WaitsToStart {
			continue
		}
		now := printOf(&why)
		if told := op.toldWhy.Load(); told == now || told == toldEarlier && op.toldWhy.CompareAndSwap(told, now) {
			continue
		}
		w.mu.Lock()
		if w.first == nil {
			w.first = make(map[statefs.ID]struct{})
		}
		w.first[id] = struct{}{}
		w.mu.Unlock()
		d.looks.want(id)
	}
}

// close ends the timers.
func (w *waiters) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, timer := range []*time.Timer{w.compareFollowed, w.compareFirst} {
		if timer != nil {
			timer.Stop()
		}
	}
}
