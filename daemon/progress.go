package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// progressEvery is the shortest time between two writes of a progress file.
const progressEvery = time.Second

// progressFile writes progress at most once a second: immediately if the last write is at least a
// second ago, otherwise when that second is over. No timer runs while nothing changes. A failed
// write is not retried; the next progress overwrites it, since progress may be lost.
type progressFile struct {
	write func(statefs.Progress) error

	mu     sync.Mutex
	last   time.Time
	next   statefs.Progress
	timer  *time.Timer
	due    bool
	closed bool
}

func (f *progressFile) put(p statefs.Progress, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = p
	if f.closed || f.due {
		return
	}
	if wait := progressEvery - now.Sub(f.last); wait > 0 && !f.last.IsZero() {
		f.due = true
		if f.timer == nil {
			f.timer = time.AfterFunc(wait, f.flush)
		} else {
			f.timer.Reset(wait)
		}
		return
	}
	f.writeLocked(now)
}

func (f *progressFile) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due && !f.closed {
		f.due = false
		f.writeLocked(time.Now())
	}
}

func (f *progressFile) writeLocked(now time.Time) {
	f.last = now
	_ = f.write(f.next) // progress may be lost; the next one is written within a second
}

// close writes pending progress and stops the timer.
func (f *progressFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.due {
		f.due = false
		f.writeLocked(time.Now())
	}
	f.closed = true
}
