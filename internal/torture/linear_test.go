package torture

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// TestLinearizable lets clients act on the same operations concurrently, over HTTP and by files. It checks
// for each history of answers whether there is one order of the calls, each between its begin and its end, in
// which every answer is right.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	d := r.start()
	histories, calls, operations, lost, open := prooftest.Count(1, 1, 10), 0, 0, 0, 0
	for range histories {
		c := &modelClients{t: t, r: r, d: d, began: time.Now()}
		history := c.act(8+r.random.IntN(9), 3, prooftest.Count(300, 600, 5000))
		if t.Failed() {
			t.Fatalf("the daemon said: %s", d.stderr)
		}
		undecided, err := linearizable(history, d.stderr.String())
		must(t, err)
		calls, operations, lost, open = calls+len(history), operations+c.seen, lost+c.open, open+undecided
	}
	d.stop(t)
	if open*100 > operations {
		t.Errorf("of %d operations %d could not be decided", operations, open)
	}
	figures.add(t, "histories of 8 to 16 clients in which one order explains every answer", histories)
	figures.add(t, "answers in them", calls)
	figures.add(t, "operations that they shared", operations)
	figures.add(t, "of these not decided, because the search took too long", open)
	figures.add(t, "answers that never came", lost)
}

// longSearch bounds the search for the order of the calls about one operation, which is exponential in the
// number of concurrent calls.
const longSearch = 3 * time.Minute

// linearizable reports whether one order explains a history, and for how many operations the search did not
// finish. The error contains the path of the visualization of an operation without an order, and the log
// lines of the daemon about it.
func linearizable(history []porcupine.Operation, said string) (undecided int, err error) {
	for _, part := range lifetimes.Partition(history) {
		switch porcupine.CheckOperationsTimeout(lifetimes, part, longSearch) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			undecided++
			continue
		case porcupine.Illegal:
		}
		_, info := porcupine.CheckOperationsVerbose(lifetimes, part, 0)
		picture, err := os.CreateTemp("", "jobdir-linear-*.html") // kept after the test for inspection
		if err != nil {
			return undecided, err
		}
		id := inputOf(part[0]).id
		err = fmt.Errorf("no order of the %d calls explains what was answered about %s: see %s\nthe longest order of some, and what has no place in it:\n%sthe daemon said:\n%s",
			len(part), id, picture.Name(), listed(part, longest(info)), linesWith(said, id.String()))
		return undecided, errors.Join(err, porcupine.Visualize(lifetimes, info, picture), picture.Close())
	}
	return undecided, nil
}

// longest returns the longest partial order that was found.
func longest(info porcupine.LinearizationInfo) []porcupine.Operation {
	var found []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(found) {
				found = order
			}
		}
	}
	return found
}

// listed formats a history as text: an order of some calls, then the other calls by their ends.
func listed(part, order []porcupine.Operation) string {
	others := slices.DeleteFunc(slices.Clone(part),
		func(entry porcupine.Operation) bool { return slices.Contains(order, entry) })
	slices.SortFunc(others, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	var text strings.Builder
	for i, entry := range slices.Concat(order, others) {
		if i == len(order) {
			text.WriteString("without a place:\n")
		}
		fmt.Fprintf(&text, "%12s to %12s client %2d: %s -> %s\n", time.Duration(entry.Call), time.Duration(entry.Return),
			entry.ClientId, entry.Input, entry.Output)
	}
	return text.String()
}

func linesWith(text, word string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// TestLinearizableSeesWrongAnswers checks that the checker can fail: in a real history of one client, it
// replaces each informative answer by a wrong one.
func TestLinearizableSeesWrongAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	c := &modelClients{t: t, r: r, d: r.start(), began: time.Now()}
	c.submit(0, 0)
	id := c.ops[0]
	until(t, "it runs", func() bool { _, err := os.Lstat(c.marker(id, statefs.Running)); return err == nil })
	ask := func(ask statefs.Action) {
		_, err := c.request(0, id, ask, patience, nil)
		must(t, err)
	}
	look := func(states ...statefs.State) {
		_, err := c.get(0, id)
		must(t, err)
		for _, state := range states {
			must(t, c.ls(0, id, state))
		}
	}
	must(t, c.ls(0, id, statefs.Running))
	sure := len(c.history) // from here on it cannot be queued any more
	look(statefs.Running, statefs.Paused)
	must(t, c.mv(0, id, statefs.Running, statefs.Paused))
	must(t, c.mv(0, id, statefs.Running, statefs.Paused))
	look(statefs.Paused, statefs.Running)
	must(t, c.mv(0, id, statefs.Paused, statefs.Running))
	ask(statefs.Pause)
	look(statefs.Paused, statefs.Running)
	ask(statefs.Resume)
	look(statefs.Running, statefs.Paused)
	ask(statefs.Cancel)
	look()
	undecided, err := linearizable(c.history, "")
	must(t, err)
	if undecided > 0 {
		t.Fatal("a history of one client was not decided")
	}
	wrong := 0
	for i, entry := range c.history {
		if i < sure || inputOf(c.history[i-1]).do == request {
			continue // the state in the answer to a request may precede its effect
		}
		said, _ := entry.Output.(reply)
		for _, other := range otherwise(inputOf(entry), said) {
			c.history[i].Output = other
			if porcupine.CheckOperations(lifetimes, c.history) {
				t.Errorf("%s -> %s instead of %s is believed", entry.Input, other, said)
			}
			wrong++
		}
		c.history[i].Output = said
	}
	c.d.stop(t)
	figures.add(t, "wrong answers put into a history, each seen", wrong)
}

// otherwise returns answers that would have been wrong.
func otherwise(c call, r reply) []reply {
	switch c.do {
	case get:
		var others []reply
		for _, state := range []statefs.State{statefs.Queued, statefs.Running, statefs.Paused, statefs.Cancelled} {
			if state != r.state {
				others = append(others, reply{state: state})
			}
		}
		return others
	case marker, move:
		return []reply{{yes: !r.yes}}
	case request:
		return []reply{{absent: true}}
	case submit:
		return []reply{{state: statefs.Paused}}
	case touch:
	}
	return nil
}
