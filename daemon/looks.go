package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// maxLooks bounds how many operations are looked at side by side. A look may wait for the disk, and more than this many syncs at
// once only wait longer.
const maxLooks = 64

// looks runs one look for each operation that somebody wants looked at, never two for the same one at a time. Wanting again
// while a look runs makes one more look afterwards, so nothing that happened after a look began is missed, and a thousand wishes
// cost one look. A look is told the names that all of these wishes are about.
type looks struct {
	look func(statefs.ID, statefs.Names)

	mu      sync.Mutex
	wishes  map[statefs.ID]wish
	retries map[statefs.ID]*retry
	queue   []statefs.ID
	workers int
	closed  bool
	group   sync.WaitGroup
	quiet   *sync.Cond // on mu: there may be no worker left
}

// repeats counts, for each ID, the looks in a row that found the marker on the move. It is safe for concurrent use.
type repeats struct {
	mu    sync.Mutex
	count map[statefs.ID]int
}

// promptRepeats is how often in a row an operation is looked at again at once.
const promptRepeats = 3

// again returns after what time to look again: at once for the first times, since somebody who renames is done in microseconds;
// then ever later, up to tryAgain, since whatever keeps a rename from succeeding must not keep a processor and the disk busy.
func (r *repeats) again(id statefs.ID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = make(map[statefs.ID]int)
	}
	n := r.count[id]
	r.count[id] = n + 1
	if n < promptRepeats {
		return 0
	}
	return min(time.Millisecond<<min(n-promptRepeats, 16), tryAgain)
}

// over forgets an ID whose marker stood still.
func (r *repeats) over(id statefs.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.count, id)
}

// wish is a look that is to come, and the names that it is about.
type wish struct {
	state lookState
	names statefs.Names
}

type lookState uint8

const (
	lookQueued lookState = iota + 1
	lookRunning
	lookAgain // runs, and is wanted again
)

// retry is a look that is due.
type retry struct {
	due   time.Time
	timer *time.Timer
}

func newLooks(look func(statefs.ID, statefs.Names)) *looks {
	l := &looks{look: look, wishes: make(map[statefs.ID]wish), retries: make(map[statefs.ID]*retry)}
	l.quiet = sync.NewCond(&l.mu)
	return l
}

// want asks for a look at everything that there is of an operation. It never blocks.
func (l *looks) want(id statefs.ID) { l.wantNames(id, statefs.AllNames) }

// wantNames is want where only some of the names can be others than at the last look.
func (l *looks) wantNames(id statefs.ID, names statefs.Names) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	w := l.wishes[id]
	w.names |= names
	switch w.state {
	case lookQueued, lookAgain:
	case lookRunning:
		w.state = lookAgain
	default:
		w.state = lookQueued
		l.queue = append(l.queue, id)
		if l.workers < maxLooks {
			l.workers++
			l.group.Go(l.work)
		}
	}
	l.wishes[id] = w
}

// retry asks for a look after a while, because the last one failed. There is never more than one to come for an ID, the earliest:
// looks that fail for another reason to look each would otherwise add one more a second for as long as they fail.
func (l *looks) retry(id statefs.ID, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Now().Add(wait)
	known := l.retries[id]
	switch {
	case l.closed, known != nil && !due.Before(known.due):
		return
	case known != nil:
		known.timer.Stop()
	}
	r := &retry{due: due}
	r.timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		if l.retries[id] == r {
			delete(l.retries, id)
		}
		l.mu.Unlock()
		l.want(id)
	})
	l.retries[id] = r
}

// work looks until there is nothing left to look at.
func (l *looks) work() {
	l.mu.Lock()
	for len(l.queue) > 0 && !l.closed {
		id := l.queue[0]
		l.queue = l.queue[1:]
		names := l.wishes[id].names
		l.wishes[id] = wish{state: lookRunning}
		l.mu.Unlock()
		l.look(id, names)
		l.mu.Lock()
		if w := l.wishes[id]; w.state == lookAgain {
			w.state = lookQueued
			l.wishes[id] = w
			l.queue = append(l.queue, id)
		} else {
			delete(l.wishes, id)
		}
	}
	if len(l.queue) == 0 {
		l.queue = nil // an emptied queue of a storm is given back
	}
	l.workers--
	l.quiet.Broadcast()
	l.mu.Unlock()
}

// addTo adds the IDs that are being looked at or are to be.
func (l *looks) addTo(ids map[statefs.ID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.wishes {
		ids[id] = true
	}
	for id := range l.retries {
		ids[id] = true
	}
}

// wait returns when nothing that was wanted is left to look at.
func (l *looks) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.workers > 0 {
		l.quiet.Wait()
	}
}

// close takes no more wishes and waits for the looks that run.
func (l *looks) close() {
	l.mu.Lock()
	l.closed = true
	for id, r := range l.retries {
		r.timer.Stop()
		delete(l.retries, id)
	}
	l.mu.Unlock()
	l.group.Wait()
}
