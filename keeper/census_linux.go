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
}

var marks census

// question is whether a process carries all of some marks.
type question struct {
	marks []string
	turn  chan bool // true: it is answered; false: make the pass

	found   bool
	loading bool // a process had no environment yet
	err     error
}

// clear reports whether no process carries the marks, as sure as a sweep is: cleanPasses in a row have found none.
func (c *census) clear(wanted []string) (bool, error) {
	loading := 0
	for clean := 0; clean < cleanPasses; {
		q := &question{marks: wanted, turn: make(chan bool, 1)}
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
	err := count(batch)
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
func count(batch []*question) error {
	line, err := ownLine()
	if err != nil {
		return err
	}
	pids, err := numbersIn("/proc")
	if err != nil {
		return err
	}
	byMark := make(map[string][]*question, len(batch))
	for _, q := range batch {
		byMark[q.marks[0]] = append(byMark[q.marks[0]], q)
	}
	for _, pid := range pids {
		if line[pid] {
			continue
		}
		environ, loading, err := environOf(pid)
		if err != nil {
			return err
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

// environOf returns the environment of a process that may be searched; loading says that it has none yet.
func environOf(pid int) (environ []byte, loading bool, err error) {
	st, err := readStat(pid)
	if errors.Is(err, errGone) || err == nil && (st.kernel() || st.zombie()) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	environ, err = readEnviron(pid)
	if errors.Is(err, errGone) || errors.Is(err, fs.ErrPermission) {
		return nil, false, nil
	}
	return environ, err == nil && len(environ) == 0 && st.envEnd == 0, err
}
