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

	"github.com/jobdir/jobdir/statefs"
)

// TestLinearizable lets clients do things to the same operations at the same time, over HTTP and by files, and asks of each history of
// answers whether there is one order of the calls, each between its begin and its end, in which every answer is right.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	d := r.start()
	histories, calls, operations, lost, open := scaled(1, 10), 0, 0, 0, 0
	for range histories {
		c := &crowd{t: t, r: r, d: d, began: time.Now()}
		history := c.act(8+r.random.IntN(9), 3, scaled(600, 5000))
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

// longSearch bounds the search for the order of the calls about one operation, which is exponential in what happens at the same time.
const longSearch = time.Minute

// linearizable says whether one order explains a history, and of how many operations that could not be decided. The error names the
// picture of one that has none, and has what the daemon said of its operation.
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
		picture, err := os.CreateTemp("", "jobdir-linear-*.html") // it outlives the test, for whoever looks
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

// longest is the longest order of some calls that was found.
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

// listed is a history as text: an order of some calls, then the others in the order in which they ended.
func listed(part, order []porcupine.Operation) string {
	others := slices.DeleteFunc(slices.Clone(part), func(entry porcupine.Operation) bool { return slices.Contains(order, entry) })
	slices.SortFunc(others, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	var text strings.Builder
	for i, entry := range slices.Concat(order, others) {
		if i == len(order) {
			text.WriteString("without a place:\n")
		}
		fmt.Fprintf(&text, "%12s to %12s client %2d: %s -> %s\n", time.Duration(entry.Call), time.Duration(entry.Return), entry.ClientId, entry.Input, entry.Output)
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

// TestLinearizableSeesWrongAnswers holds that the checker can fail: of a real history of one client each answer that says something is
// turned into another one.
func TestLinearizableSeesWrongAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	c := &crowd{t: t, r: r, d: r.start(), began: time.Now()}
	c.submit(0, 0)
	id := c.ops[0]
	until(t, "it runs", func() bool { _, err := os.Lstat(c.marker(id, statefs.Running)); return err == nil })
	ask := func(ask statefs.Ask) {
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
	sure := len(c.history) // until here it may be queued
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
			continue // the state that a request has answered may be the one of before its effect
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

// otherwise returns what could have been answered instead, and would have been wrong.
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
