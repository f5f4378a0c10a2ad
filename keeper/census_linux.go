package keeper

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"
)

// census looks for the marks of many commands in one pass over the processes. When a thousand commands end at once, a search for each of
// them would read the environments of a thousand processes a thousand times.
//
// Whoever asks while a pass is under way waits for the next one, which serves all who wait. There is no goroutine of its own: the first
// to ask makes the pass, and hands over to one of those who came meanwhile.
type census struct {
	mu      sync.Mutex
	busy    bool // somebody makes a pass, or is about to
	waiting []*question

	// older are the processes of the last pass that had started before a time, and were not read therefore. They are those of the one
	// who makes the pass.
	older   map[int]bool
	before  uint64
	counted time.Time
}

// trusted is how long a number is taken to be that of the same process: passes follow each other within milliseconds.
const trusted = 20 * time.Millisecond

var marks census

// question is whether a process carries all of some marks.
type question struct {
	marks []string
	since uint64    // a process that started before cannot be meant
	turn  chan bool // true: it is answered; false: make the pass

	found   bool
	loading bool // a process had no environment yet
	err     error
}

// clear reports whether no process carries the marks, as sure as a sweep is: cleanPasses in a row have found none.
func (c *census) clear(wanted []string, since uint64) (bool, error) {
	loading := 0
	for clean := 0; clean < cleanPasses; {
		q := &question{marks: wanted, since: since, turn: make(chan bool, 1)}
		c.ask(q)
		switch {
		case q.err != nil || q.found:
			return false, q.err
		case q.loading && loading < loadingLooks:
			loading++
			pause(context.Background(), time.Millisecond)
		default:
			clean++
		}
	}
	return true, nil
}

// ask returns when a pass that began after the call has answered q.
func (c *census) ask(q *question) {
	c.mu.Lock()
	c.waiting = append(c.waiting, q)
	if c.busy {
		c.mu.Unlock()
		if <-q.turn {
			return
		}
		c.mu.Lock()
	}
	c.busy = true
	batch := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	err := c.count(batch)
	c.mu.Lock()
	c.busy = len(c.waiting) > 0
	if c.busy {
		c.waiting[0].turn <- false
	}
	c.mu.Unlock()
	for _, other := range batch {
		other.err = err
		if other != q {
			other.turn <- true
		}
	}
}

// count makes one pass for all questions.
func (c *census) count(batch []*question) error {
	line, err := ownLine()
	if err != nil {
		return err
	}
	pids, err := numbersIn("/proc")
	if err != nil {
		return err
	}
	byMark, since := make(map[string][]*question, len(batch)), batch[0].since
	for _, q := range batch {
		byMark[q.marks[0]] = append(byMark[q.marks[0]], q)
		since = min(since, q.since)
	}
	if now := time.Now(); now.Sub(c.counted) > trusted || since < c.before {
		c.older, c.before, c.counted = make(map[int]bool), since, now
	}
	for _, pid := range pids {
		if line[pid] || c.older[pid] {
			continue
		}
		environ, start, loading, err := environOf(pid, since)
		if err != nil {
			return err
		}
		if start < c.before {
			c.older[pid] = true
		}
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			for _, q := range byMark[string(entry)] {
				q.found = q.found || carries(environ, q.marks)
			}
		}
		if loading {
			for _, q := range batch {
				q.loading = true
			}
		}
	}
	return nil
}

// environOf returns when a process started, and its environment if that was not before a time and it may be searched; loading says that
// it has none yet.
func environOf(pid int, since uint64) (environ []byte, start uint64, loading bool, err error) {
	st, err := readStat(pid)
	switch {
	case errors.Is(err, errGone):
		return nil, since, false, nil
	case err != nil:
		return nil, since, false, err
	case st.start < since, st.kernel(), st.zombie():
		return nil, st.start, false, nil
	}
	environ, err = readEnviron(pid)
	if errors.Is(err, errGone) || errors.Is(err, fs.ErrPermission) {
		return nil, st.start, false, nil
	}
	return environ, st.start, err == nil && len(environ) == 0 && st.envEnd == 0, err
}
