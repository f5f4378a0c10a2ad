package torture

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// claim is a request of a client about one piece of work, and claimed its answer.
type claim struct {
	n      int
	cancel statefs.ID // zero for a submit
}

type claimed struct {
	id      statefs.ID
	created bool
	byFile  bool // the answer does not contain whether it was created
	gone    bool // there was nothing to cancel
}

// holder is the operation that holds a piece of work, and the number of the last holder.
type holder struct {
	live statefs.ID
	last uint64
}

// holders is the sequential model of equal submits and cancels of one piece of work: one operation holds it
// until it is cancelled, and the next submit makes a new one.
var holders = porcupine.Model{
	Init: func() any { return holder{} },
	Step: func(state, input, output any) (bool, any) {
		h, _ := state.(holder)
		in, _ := input.(claim)
		out, _ := output.(claimed)
		switch {
		case !in.cancel.IsZero() && out.gone:
			return h.live != in.cancel, h
		case !in.cancel.IsZero() && h.live == in.cancel:
			return true, holder{last: h.last}
		case !in.cancel.IsZero(): // another client's cancel came first, and both were reported as effective
			return in.cancel.Sequence() <= h.last, h
		case h.live.IsZero():
			return (out.created || out.byFile) && out.id.Sequence() > h.last, holder{out.id, out.id.Sequence()}
		}
		return out.id == h.live && !out.created, h
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var parts [][]porcupine.Operation
		for _, op := range history {
			in, _ := op.Input.(claim)
			for len(parts) <= in.n {
				parts = append(parts, nil)
			}
			parts[in.n] = append(parts[in.n], op)
		}
		return parts
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// TestEqualSubmitsAreLinearizable submits and cancels a few pieces of work from several clients, over HTTP
// and by file, and checks whether one order of their calls explains all answers.
func TestEqualSubmitsAreLinearizable(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "equal.yaml"), []byte(equalJobs), 0o600))
	d := r.start()
	began := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	note := func(client int, in claim, out claimed, call int64) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{
			ClientId: client, Input: in, Output: out, Call: call,
			Return: int64(time.Since(began)),
		})
	}
	const works = 3
	var all sync.WaitGroup
	for number := range 16 {
		all.Go(func() {
			for i := range prooftest.Count(4, 12, 100) {
				n := (number + i) % works
				at := int64(time.Since(began))
				var out claimed
				var err error
				if number%4 == 0 {
					out, err = submitByFile(r, fmt.Sprintf("c%d-%d", number, i), n)
				} else {
					out, err = submitByHTTP(t, d, n)
				}
				if err != nil {
					t.Error(err)
					return
				}
				note(number, claim{n: n}, out, at)
				if i%3 != number%3 {
					continue
				}
				at = int64(time.Since(began))
				_, err = d.Request(t.Context(), out.id, statefs.Cancel, patience)
				refused, ok := errors.AsType[*client.Error](err)
				if gone := ok && refused.Status == http.StatusNotFound; err == nil || gone {
					note(number, claim{n, out.id}, claimed{gone: gone}, at)
				} else {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for n, part := range holders.Partition(history) {
		result, info := porcupine.CheckOperationsVerbose(holders, part, longSearch)
		if result == porcupine.Illegal {
			picture, err := os.CreateTemp("", "jobdir-equal-*.html") //nolint:usetesting // kept after the test for inspection
			must(t, err)
			must(t, errors.Join(porcupine.Visualize(holders, info, picture), picture.Close()))
			t.Errorf("no order of the %d calls explains what was answered about work %d: see %s", len(part), n, picture.Name())
		}
	}
	d.stop(t)
	figures.add(t, "submits and cancels of equal work that one order explains", len(history))
}

func submitByHTTP(t *testing.T, d *daemon, n int) (claimed, error) {
	got, err := d.SubmitOne(t.Context(), client.Submission{Job: "equal/live", Params: map[string]int{"n": n}})
	if err != nil {
		return claimed{}, err
	}
	return claimed{id: got.ID, created: got.Created}, nil
}

// submitByFile moves a file into new/ and waits for the answer.
func submitByFile(r *rig, name string, n int) (claimed, error) {
	file := filepath.Join(r.dir, "new", name)
	if err := os.WriteFile(file+".part", fmt.Appendf(nil, `{"job":"equal/live","params":{"n":%d}}`, n),
		0o600); err != nil {
		return claimed{}, err
	}
	if err := os.Rename(file+".part", file+".json"); err != nil {
		return claimed{}, err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if why, err := os.ReadFile(file + ".rejected"); err == nil {
			return claimed{}, fmt.Errorf("%s is rejected: %s", name, why)
		}
		text, err := os.ReadFile(file + ".accepted")
		if err != nil {
			continue
		}
		id, err := statefs.ParseID(strings.TrimSpace(string(text)))
		return claimed{id: id, byFile: true}, err
	}
	return claimed{}, fmt.Errorf("%s is not answered", name)
}
