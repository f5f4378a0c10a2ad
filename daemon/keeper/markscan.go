package keeper

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
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

	// Only the caller that makes the pass uses these.
	processes processTable
	names     map[string]bool // of the marks that were searched for
}

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
//
// It does not leave out this process and its ancestors: they are older than any command, and the
// sweep that follows a find leaves them out.
func (c *markScanner) scan(batch []*markQuery) (loading bool, err error) {
	if err := c.processes.list(); err != nil {
		return false, err
	}
	byMark, since := make(map[string][]*markQuery, len(batch)), batch[0].since
	for _, q := range batch {
		byMark[q.marks[0]] = append(byMark[q.marks[0]], q)
		since = min(since, q.since)
		c.addNames(q.marks)
	}
	for i := range c.processes.rows {
		row := &c.processes.rows[i]
		if row.olderThan(since) {
			continue
		}
		young, loads, err := c.examine(row, since)
		if err != nil {
			return false, err
		}
		loading = loading || loads
		for _, mark := range row.marks {
			for _, q := range byMark[mark] {
				q.found = q.found || young && containsAll(row.marks, q.marks)
			}
		}
	}
	return loading, nil
}

// addNames adds the names of marks to the names that are searched for.
func (c *markScanner) addNames(marks []string) {
	for _, mark := range marks {
		name, _, _ := strings.Cut(mark, "=")
		if c.names[name] {
			continue
		}
		if c.names == nil {
			c.names = make(map[string]bool)
		}
		c.names[name] = true
		for i := range c.processes.rows {
			c.processes.rows[i].image = image{}
		}
	}
}

// examine notes in row when its process started and, unless that was before since, which marks it
// carries. It reads the environment only once for each program that the process executes: the kernel
// lets the reader wait while the process is in execve(2), and for its memory.
func (c *markScanner) examine(row *processRow, since uint64) (young, loading bool, err error) {
	st, err := readStat(row.pid)
	if errors.Is(err, errGone) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	row.start = st.start
	if st.start < since || st.kernel() || st.zombie() {
		return false, false, nil
	}
	if st.image.known() && st.image == row.image {
		return true, false, nil
	}
	environ, loading, err := readEnviron(row.pid, st)
	if err != nil {
		return false, false, err
	}
	row.image, row.marks = st.image, nil
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if name, _, _ := bytes.Cut(entry, []byte("=")); c.names[string(name)] {
			row.marks = append(row.marks, string(entry))
		}
	}
	return true, loading, nil
}

func containsAll(list, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(s string) bool { return !slices.Contains(list, s) })
}
