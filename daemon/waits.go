package daemon

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
)

// waits knows why operations wait, and publishes it.
type waits struct {
	*core
	publisher *publisher
}

// Waiting returns why a live operation does not run, or false if it runs or the daemon does not
// manage it.
func (wt *waits) Waiting(id statefs.ID) (statefs.Waiting, bool) {
	if _, s := wt.live.Get(id); s != nil && s.Awaits != nil {
		return statefs.Waiting{
			Reason: statefs.WaitsForOthers, HeldBy: *s.Awaits, Since: new(s.Since),
			NeedsPerson: wt.live.AncestorNeedingPerson(id),
		}, true
	}
	out, short, ok := wt.admission.waitReason(id)
	if !ok {
		return statefs.Waiting{Reason: statefs.WaitsForNextDaemon}, wt.stateOf(id) == statefs.Queued && wt.draining()
	}
	out.HeldBy = out.HeldBy.Whole()
	if out.Reason == statefs.WaitsForKey {
		if wt.stateOf(out.HeldBy).NeedsPerson() {
			out.NeedsPerson = out.HeldBy
		}
		if _, s := wt.live.Get(id); s != nil {
			if row, err := s.Row.Unpack(); err == nil {
				out.Key = row.Key
			}
		}
	}
	if out.Reason == statefs.WaitsPausedLane {
		if hold, is := wt.Lanes.Pause(out.Lane); is {
			out.Until, out.Note = hold.Until, hold.Reason
		}
	}
	switch {
	case out.Reason != statefs.WaitsToStart:
	case wt.draining():
		out.Reason = statefs.WaitsForNextDaemon
	case short:
		out.Reason = statefs.WaitsForResources
	}
	return out, true
}

// waitingReason is Waiting for an operation that is being reconciled, which may also wait for its
// time.
func (wt *waits) waitingReason(op *operation) (statefs.Waiting, bool) {
	if op.state == statefs.Queued {
		return wt.Waiting(op.id())
	}
	since := op.rec.Since()
	return statefs.Waiting{Reason: statefs.WaitsForTime, Until: op.rec.DueAt, Lane: laneOf(op.rec), Since: &since},
		(op.state == statefs.Scheduled || op.state == statefs.FailedRetryable) && op.rec.DueAt != nil
}

var fingerprintSeed = maphash.MakeSeed()

func fingerprintOf(why *statefs.Waiting) fingerprint {
	var until int64
	if why.Reason == statefs.WaitsPausedLane && why.Until != nil {
		until = why.Until.UnixNano()
	}
	return max(firstFingerprint, maphash.Comparable(fingerprintSeed, struct {
		reason      statefs.WaitReason
		limit, note string
		person      statefs.ID
		until       int64
	}{why.Reason, why.Limit, why.Note, why.NeedsPerson, until})&^reasonChanged)
}

// The shortest time between two comparisons of waiting reasons with the published ones: for the
// followed operations, and for the heads of all lanes.
const (
	compareEvery      = 100 * time.Millisecond
	compareFirstEvery = time.Second
)

// Follow registers a follower of an operation, which need not exist, until leave is called: each
// reason for which the operation waits becomes an event. A reader of its stream passes wake, and
// the log then names the reasons too; a reader of its events only passes nil. wake is called once,
// when the log is created or has a waiting reason, since a log that does not exist cannot be
// watched. It must not block.
func (wt *waits) Follow(id statefs.ID, wake func()) (leave func()) {
	w := &wt.waitFollowers
	w.mu.Lock()
	f := w.byID[id]
	if f == nil {
		f = new(followedOperation)
		w.byID[id] = f
	}
	said := f.logged != unpublished
	switch {
	case wake == nil:
		f.eventReaders++
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
	if wt.operation(id) != nil { // otherwise its first reconcile is still to come
		wt.reconcileQueue.enqueue(id)
	}
	return sync.OnceFunc(func() { w.unfollow(id, wake == nil, &wake) })
}

// publishWaiting publishes why a reconciled operation waits, if that has changed. The first reason
// of each operation becomes an event, and for followed operations and heads every reason. If its
// stream is read, the reason is logged too. A restart does not repeat first reasons that an earlier
// daemon published: a hundred thousand of them would drive everything else out of the event log.
func (wt *waits) publishWaiting(op *operation) {
	f, followed := wt.waitFollowers.of(op.id())
	published := op.publishedReason.Load()
	first := op.state == statefs.Queued && published&^reasonChanged == unpublished
	if first && !wt.isReady() && !wt.publisher.isUnpublished(op.rec) {
		op.publishedReason.Store(publishedEarlier)
		first = false
	}
	if !followed && !first && published&reasonChanged == 0 {
		return
	}
	why, waits := wt.waitingReason(op)
	if !waits || why.Reason == statefs.WaitsToStart {
		return
	}
	now := fingerprintOf(&why)
	if op.publishedReason.Swap(now)&^reasonChanged != now {
		e := events.Of(op.rec, events.WaitReason)
		e.Waiting = &why
		wt.config.Events.Publish(e)
	}
	if f.streams > 0 && f.logged != now && op.state != statefs.FailedRetryable { // a retry is logged already
		wt.logLine(op, "  Waiting: "+why.Sentence()+".")
		wt.waitFollowers.setLogged(op.id(), now)
	}
}

// queueChanged schedules a comparison of the waiting reasons with the published ones, because the
// queue has changed.
func (wt *waits) queueChanged() {
	w := &wt.waitFollowers
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt.stopping.Load() {
		return
	}
	if len(w.byID) > 0 && w.compareFollowed == nil {
		w.compareFollowed = time.AfterFunc(compareEvery, wt.checkFollowed)
	}
	if wt.config.Events != nil && w.compareFirst == nil {
		w.compareFirst = time.AfterFunc(compareFirstEvery, wt.checkFirst)
	}
}

// checkFollowed enqueues followed operations whose waiting reason was not published, or not logged
// for a stream reader.
func (wt *waits) checkFollowed() {
	w := &wt.waitFollowers
	w.mu.Lock()
	w.compareFollowed = nil
	followed := make(map[statefs.ID]followedOperation)
	for id, f := range w.byID {
		if !f.isUnfollowed() {
			followed[id] = *f
		}
	}
	w.mu.Unlock()
	for id, f := range followed {
		op, now := wt.reasonNow(id)
		if op != nil && (op.publishedReason.Load() != now || f.streams > 0 && f.logged != now) {
			wt.reconcileQueue.enqueue(id)
		}
	}
}

// checkFirst enqueues heads whose waiting reason differs from the published one. If an earlier
// daemon has published a reason, which is not known, the present one is noted and not published.
func (wt *waits) checkFirst() {
	w := &wt.waitFollowers
	w.mu.Lock()
	w.compareFirst = nil
	w.mu.Unlock()
	if !wt.isReady() {
		return
	}
	for _, id := range wt.admission.firstWaiting() {
		op, now := wt.reasonNow(id.Whole())
		if op == nil || op.publishedReason.CompareAndSwap(publishedEarlier, now) || op.publishedReason.Load() == now {
			continue
		}
		op.publishedReason.Or(reasonChanged)
		wt.reconcileQueue.enqueue(op.id())
	}
}

// reasonNow returns a queued operation and the fingerprint of its reason to wait; nil if it has none to publish.
func (wt *waits) reasonNow(id statefs.ID) (*operation, fingerprint) {
	why, waits := wt.Waiting(id)
	op := wt.operation(id)
	if !waits || op == nil || why.Reason == statefs.WaitsToStart {
		return nil, unpublished
	}
	return op, fingerprintOf(&why)
}
