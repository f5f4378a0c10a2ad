package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// No operation of a list starts before the queue knows all of it, whichever way the list comes.
func TestListIsAdmittedAsAWhole(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	const length = 20
	var entries []orderEntry
	for i := range length {
		entries = append(entries, entryOf("stay", 0, orderEntry{"priority": 10 * (i / (length - 3))}))
	}
	tree, err := statefs.Open(s.storage, statefs.Options{})
	s.must(err)
	defer func() { s.must(tree.Close()) }()
	ways := map[string]func(round int){
		"http": func(int) { s.submitList(entries) },
		"file": func(round int) {
			data, err := json.Marshal(entries)
			s.must(err)
			name := fmt.Sprintf("list%d.json", round)
			s.must(os.WriteFile(filepath.Join(s.storage, "new", "."+name), data, 0o600))
			s.must(os.Rename(filepath.Join(s.storage, "new", "."+name), filepath.Join(s.storage, "new", name)))
		},
		"another process": func(int) {
			var drafts []*statefs.Record
			for _, e := range entries {
				priority, _ := e["priority"].(int)
				rec, err := tree.Draft(statefs.Submission{Group: "g", Job: "stay", Lane: "two", Priority: priority})
				s.must(err)
				drafts = append(drafts, rec)
			}
			s.must(tree.Publish(drafts...))
		},
	}
	for name, submit := range ways {
		for round := range prooftest.Count(2, 5, 5) {
			submit(round)
			for _, id := range s.awaitRunning(2) {
				if o := s.show(id); o.Priority != 10 {
					t.Errorf("%s, round %d: %s runs with priority %d", name, round, id, o.Priority)
				}
			}
			until(t, "all are there", func() bool { return len(s.markers(statefs.Queued)) == length-2 })
			s.clear()
		}
	}
}

// Operations of a key run in the order of their submit, however many are submitted at once and whichever way.
func TestKeyInOrderOfSubmit(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	jobs := []string{"then", "first"} // of two lanes
	const count = 12
	for range prooftest.Count(1, 3, 3) {
		for i := range count {
			s.submit(jobs[i%2], i+1)
		}
		s.wantTrace("one after the other", oneTo(count)...)

		var entries []orderEntry
		for i := range count {
			entries = append(entries, entryOf(jobs[i%2], i+1))
		}
		s.submitList(entries)
		s.wantTrace("a list", oneTo(count)...)

		for i := range count {
			data, err := json.Marshal(entries[i])
			s.must(err)
			s.must(os.WriteFile(filepath.Join(s.storage, ".entry"), data, 0o600))
			name := fmt.Sprintf("%c.json", 'z'-i)
			s.must(os.Rename(filepath.Join(s.storage, ".entry"), filepath.Join(s.storage, "new", name)))
		}
		s.wantTrace("files", oneTo(count)...)

		var mu sync.Mutex
		numbers := make(map[uint64]int)
		var all sync.WaitGroup
		for i := range count {
			all.Go(func() {
				id := s.submit(jobs[i%2], i+1, orderEntry{"idempotency_key": fmt.Sprint(time.Now().UnixNano(), "-", i)})
				mu.Lock()
				defer mu.Unlock()
				numbers[sequenceOf(t, id)] = i + 1
			})
		}
		all.Wait()
		var want []int
		for _, number := range slices.Sorted(maps.Keys(numbers)) {
			want = append(want, numbers[number])
		}
		s.wantTrace("at the same time", want...)
	}
}

// What another process submits is in order too.
func TestKeyInOrderOfSubmitByAnotherProcess(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	tree, err := statefs.Open(s.storage, statefs.Options{})
	s.must(err)
	defer func() { s.must(tree.Close()) }()
	const count = 30
	for range prooftest.Count(1, 3, 3) {
		for i := range count {
			rec, err := tree.Draft(statefs.Submission{
				Group: "g", Job: "then", Lane: []string{"one", "wide"}[i%2], Key: "k", KeyOrder: "submit",
				Params: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i+1)),
			})
			s.must(err)
			s.must(tree.Publish(rec))
		}
		s.wantTrace("another process", oneTo(count)...)
	}
}

// An operation that cannot start holds its key, and the list of operations names it.
func TestKeyIsHeldByWhatCannotStart(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	control := func(id, action string) { s.call(http.MethodPost, "/api/v1/operations/"+id+"/"+action, nil, nil) }
	s.call(http.MethodPost, "/api/v1/lanes/one/pause", nil, nil)
	holders := []struct {
		name string
		make func() string
		done func(id string) // lets it go on or ends it
	}{
		{"in a paused lane", func() string { return s.submit("first", 1) }, func(string) {
			s.call(http.MethodPost, "/api/v1/lanes/one/resume", nil, nil)
		}},
		{"paused", func() string {
			s.call(http.MethodPost, "/api/v1/lanes/one/pause", nil, nil)
			id := s.submit("first", 1)
			control(id, "pause")
			s.awaitState(id, statefs.Paused)
			s.call(http.MethodPost, "/api/v1/lanes/one/resume", nil, nil)
			return id
		}, func(id string) { control(id, "resume") }},
		{"delayed", func() string {
			return s.submit("first", 1, orderEntry{"delay": "1h"})
		}, func(id string) { control(id, "cancel") }},
		{"in back-off", func() string {
			id := s.submit("again", 0)
			s.awaitState(id, statefs.FailedRetryable)
			return id
		}, func(id string) { control(id, "cancel") }},
		{"failed, for a person", func() string {
			id := s.submit("person", 0)
			s.awaitState(id, statefs.FailedManual)
			return id
		}, func(id string) { control(id, "cancel") }},
		{"for an approval", func() string {
			id := s.submit("gate", 0)
			s.awaitState(id, statefs.WaitingApproval)
			return id
		}, func(id string) { control(id, "approve") }},
		{"after another one", func() string {
			return s.submit("first", 1, orderEntry{"after": []string{s.submit("stay", 0)}})
		}, func(string) {
			for _, id := range s.markers(statefs.Running) {
				control(id, "cancel")
			}
			until(t, "it waits for a person", func() bool { return len(s.markers(statefs.FailedManual)) == 1 })
			control(s.markers(statefs.FailedManual)[0], "cancel")
		}},
	}
	for _, holder := range holders {
		id := holder.make()
		behind := s.submit("then", 2)
		until(t, holder.name+" names the holder", func() bool {
			w := s.show(behind).Waiting
			return w != nil && w.Reason == "key" && w.HeldBy == id
		})
		out, err := exec.Command("jobdir", "ls", "--storage", s.storage).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "held by "+id) {
			t.Errorf("%s: ls shows, %v:\n%s", holder.name, err, out)
		}
		holder.done(id)
		s.awaitTrace(1)
		until(t, "both have ended", func() bool {
			return len(s.markers(statefs.Queued))+len(s.markers(statefs.Running)) == 0
		})
		if got := s.awaitTrace(1); got[len(got)-1] != 2 || len(got) == 2 && got[0] != 1 {
			t.Errorf("%s: they ran in the order %v", holder.name, got)
		}
		s.clear()
		s.forgetTrace()
	}
}

// With another order of the key, the first that can start does, or the most urgent one.
func TestOrdersOfAKey(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	s.call(http.MethodPost, "/api/v1/lanes/one/pause", nil, nil)
	s.submit("any", 1)
	s.submit("anywide", 2)
	s.wantTrace("any", 2)
	for i, priority := range []int{0, 5, 10, 5} {
		s.submit("urgent", i+2, orderEntry{"priority": priority})
	}
	s.call(http.MethodPost, "/api/v1/lanes/one/resume", nil, nil)
	got := slices.DeleteFunc(s.awaitTrace(5), func(n int) bool { return n == 1 })
	if want := []int{4, 3, 5, 2}; !slices.Equal(got, want) {
		t.Errorf("by priority they ran in the order %v, want %v", got, want)
	}
}

// A resume of all lanes is one decision: across lanes that share a limit, the most urgent operations start.
func TestResumeOfAllLanesIsOneDecision(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	for round := range 8 {
		s.call(http.MethodPost, "/api/v1/lanes/all/pause", nil, nil)
		urgent, patient := "left", "right"
		if round%2 == 1 {
			urgent, patient = patient, urgent
		}
		for range 4 {
			s.submit(patient, 0)
		}
		for range 4 {
			s.submit(urgent, 0, orderEntry{"priority": 5})
		}
		until(t, "all wait", func() bool {
			var out struct{ All struct{ Queued int } }
			s.call(http.MethodGet, "/api/v1/stats", nil, &out)
			return out.All.Queued == 8
		})
		s.call(http.MethodPost, "/api/v1/lanes/all/resume", nil, nil)
		for _, id := range s.awaitRunning(2) {
			if o := s.show(id); o.Priority != 5 {
				t.Errorf("round %d: %s runs with priority %d", round, id, o.Priority)
			}
		}
		s.clear()
	}
}

// After the answer to a lowered capacity nothing starts above it, also when more was about to start.
func TestNothingStartsAboveALoweredCapacity(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	capacity := func(n int) { s.call(http.MethodPatch, "/api/v1/lanes/wide", orderEntry{"capacity": n}, nil) }
	for round := range prooftest.Count(1, 4, 4) {
		capacity(0)
		var entries []orderEntry
		for range 60 {
			entries = append(entries, entryOf("wide", 0))
		}
		s.submitList(entries)
		s.must(os.WriteFile(filepath.Join(s.storage, "lanes", "wide.capacity"), []byte("60\n"), 0o600))
		until(t, "some run", func() bool { return len(s.markers(statefs.Running)) > 0 })
		capacity(1)
		before := s.markers(statefs.Running)
		// What would start goes the same way as this operation of another lane.
		s.awaitState(s.submit("stay", 0), statefs.Running)
		after := slices.DeleteFunc(s.markers(statefs.Running), func(id string) bool {
			return strings.HasPrefix(id, "g-stay")
		})
		for _, id := range after {
			if !slices.Contains(before, id) {
				t.Errorf("round %d: %s started after the answer, when %d ran", round, id, len(before))
			}
		}
		s.clear()
	}
}

// Each operation counts once at every moment: from the answer to its submit until long after its end.
func TestStatsCountEachOperationOnce(t *testing.T) {
	t.Parallel()
	s := serveOrder(t)
	count := func() (sum int, states map[statefs.State]int) {
		var out struct{ States map[statefs.State]int }
		s.call(http.MethodGet, "/api/v1/stats", nil, &out)
		for _, n := range out.States {
			sum += n
		}
		return sum, out.States
	}
	one := prooftest.Count(40, 150, 150) // by one
	for i := range one {
		s.submit("then", i+1)
		if sum, states := count(); sum != i+1 {
			t.Fatalf("after %d submits %d are counted: %v", i+1, sum, states)
		}
	}
	for {
		sum, states := count()
		if sum != one {
			t.Fatalf("after %d submits %d are counted: %v", one, sum, states)
		}
		if states[statefs.Completed] == one {
			break
		}
	}

	// A flood: the daemon sees most of these operations after the answer.
	s.call(http.MethodPatch, "/api/v1/lanes/two", orderEntry{"capacity": 0}, nil)
	flood := prooftest.Count(1000, 5000, 5000)
	s.submitList(slices.Repeat([]orderEntry{entryOf("stay", 0)}, flood))
	for range 10 {
		if sum, states := count(); sum != one+flood {
			t.Fatalf("after a list of %d, %d are counted: %v", flood, sum, states)
		}
	}
}
