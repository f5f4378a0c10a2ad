package keeper

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"
)

// markScanner searches for the marks of many commands in one pass over the processes. When a
// thousand commands end at once, a search for each would read the environments of a thousand
// processes a thousand times.
//
// A query that comes during a pass waits for the next pass, which serves all waiting queries. The
// scanner has no goroutine of its own: the first of the waiting callers makes the pass.
type markScanner struct {
	pass sync.Mutex // held by the caller that makes a pass

	mu      sync.Mutex
	waiting []*markQuery

	// older are the processes that earlier passes skipped because they started before the time
	// before. Only the caller that makes the pass uses it.
	older     map[int]bool
	before    uint64
	scannedAt time.Time
}

// pidReuseWindow is how long a PID is assumed to belong to the same process: passes follow each
// other within milliseconds.
const pidReuseWindow = 20 * time.Millisecond

var scanner markScanner

// markQuery asks whether a process carries all of the given marks.
type markQuery struct {
	marks []string
	since uint64 // skip processes that started before

	answered bool
	found    bool
	loading  bool // see scan
	err      error
}

// noneMarked reports whether it is known that no process carries the marks, as reliably as by a sweep:
// cleanPasses passes in a row must find none.
func (c *markScanner) noneMarked(wanted []string, since uint64) bool {
	loading := 0
	for clean := 0; clean < cleanPasses; {
		q := &markQuery{marks: wanted, since: since}
		c.answer(q)
		switch {
		case q.err != nil || q.found:
			return false
		case q.loading && loading < maxLoadingPolls:
			loading++
			pause(context.Background(), time.Millisecond)
		default:
			clean++
		}
	}
	return true
}

// answer returns when a pass that began after the call has answered q.
func (c *markScanner) answer(q *markQuery) {
	c.mu.Lock()
	c.waiting = append(c.waiting, q)
	c.mu.Unlock()
	c.pass.Lock()
	defer c.pass.Unlock()
	if q.answered {
		return
	}
	c.mu.Lock()
	batch := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	loading, err := c.scan(batch)
	for _, served := range batch {
		served.answered, served.loading, served.err = true, loading, err
	}
}

// scan makes one pass for all queries. loading means that a process was still loading its program and
// had no environment.
func (c *markScanner) scan(batch []*markQuery) (loading bool, err error) {
	line, err := ownAncestors()
	if err != nil {
		return false, err
	}
	pids, err := numbersIn("/proc")
	if err != nil {
		return false, err
	}
	byMark, since := make(map[string][]*markQuery, len(batch)), batch[0].since
	for _, q := range batch {
		byMark[q.marks[0]] = append(byMark[q.marks[0]], q)
		since = min(since, q.since)
	}
	if now := time.Now(); now.Sub(c.scannedAt) > pidReuseWindow || since < c.before {
		c.older, c.before, c.scannedAt = make(map[int]bool), since, now
	}
	for _, pid := range pids {
		if line[pid] || c.older[pid] {
			continue
		}
		st, err := readStat(pid)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return false, err
		}
		if st.start < c.before {
			c.older[pid] = true
		}
		if st.start < since || st.kernel() || st.zombie() {
			continue
		}
		environ, loads, err := readEnviron(pid, st)
		if err != nil {
			return false, err
		}
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			for _, q := range byMark[string(entry)] {
				q.found = q.found || hasMarks(environ, q.marks)
			}
		}
		loading = loading || loads
	}
	return loading, nil
}
