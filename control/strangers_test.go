package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// strangerNumbered is foreign with a number of the test's choice.
func (r *rig) strangerNumbered(number uint64) *work {
	r.t.Helper()
	id, err := statefs.MakeID("testrouter-own", time.Now(), os.Getppid(), number)
	must(r.t, err)
	must(r.t, os.WriteFile(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(id, statefs.Running)), nil, 0o640))
	return r.take(id.String())
}

// An operation of another program that has ended was never pruned, whatever its number. Nobody needs to have asked for it before.
func TestAStrangerThatHasEndedWasNotPruned(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit() // has the number 1
	gone, err := statefs.MakeID("testrouter-own", time.Now(), os.Getppid()+1, 1)
	must(t, err)
	stranger := r.strangerNumbered(1)
	r.until("it is noticed", func() bool { return r.server.hub.strangers.has(stranger.id) })
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(stranger.id, statefs.Running))))
	for _, a := range []reply{
		r.get(stranger.path("")), r.get(stranger.path("/stream")), r.do("POST", stranger.path("/cancel"), ""), r.do("POST", stranger.path("/retry"), ""),
		r.do("DELETE", stranger.path(""), ""), r.do("POST", stranger.path("/skip"), ""),
	} {
		r.problem(a, 404, "Operation '"+stranger.id.String()+"' not found or already finished")
	}
	r.problem(r.get("/api/v1/operations/"+gone.String()), 410, "it was pruned or deleted")
	// A request for one that was pruned does not make it one of another program.
	must(t, os.WriteFile(filepath.Join(r.tree.JobsDir(), statefs.RequestName(gone, statefs.Cancel)), nil, 0o640))
	next := r.strangerNumbered(2)
	r.until("the next one is noticed", func() bool { return r.server.hub.strangers.has(next.id) })
	r.problem(r.get("/api/v1/operations/"+gone.String()), 410, "it was pruned or deleted")
}

// Whoever asks something of another program's operation is told that it is written and who has to act, and not that it had no effect.
func TestAskingAStranger(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.strangerNumbered(999999)
	const says = "which another program keeps: the request is in jobs/, and that program has to act on it"
	check := func(a reply, status int, state, effect any, message string) {
		t.Helper()
		out := a.json(t)
		text, _ := out["message"].(string)
		if a.status != status || out["foreign"] != true || out["state"] != state || out["took_effect"] != effect || !strings.Contains(text, says+message) {
			t.Errorf("%d %s, want %d, %v, %v", a.status, a.body, status, state, effect)
		}
	}
	check(r.do("POST", w.path("/pause"), ""), 202, nil, nil, "")
	check(r.do("POST", w.path("/prioritize"), ""), 202, nil, nil, "")
	check(r.get("/testrouter/control?action=cancel&id="+w.id.String()), 200, nil, nil, "")
	over := r.do("POST", w.path("/cancel?wait=10ms"), "")
	check(over, 202, "running", nil, "")
	if over.json(t)["pending"] != true {
		t.Errorf("nothing stands: %s", over.body)
	}
	answers := make(chan reply, 1)
	ask := func(action string) {
		go func() { answers <- r.do("POST", w.path("/"+action+"?wait=5m"), "") }()
		r.until("the request is there", func() bool { return r.tree.Requested(w.id, statefs.Ask(action)) })
		must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, statefs.Ask(action))))) // as that program does
	}
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, statefs.Pause))))
	ask("pause")
	must(t, os.Rename(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Running)), filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Paused))))
	check(<-answers, 200, "paused", true, "")
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, statefs.Cancel))))
	ask("cancel")
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Paused))))
	check(<-answers, 200, nil, nil, "; it has ended since")
}

func TestStrangersAreForgotten(t *testing.T) {
	t.Parallel()
	var s strangers
	first, err := statefs.MakeID("a-b", time.Now(), 5, 1)
	must(t, err)
	for range 2 {
		s.add(first)
	}
	for n := range uint64(mostStrangers) {
		if !s.has(first) {
			t.Fatalf("forgotten after %d", n)
		}
		id, err := statefs.MakeID("a-b", time.Now(), 5, n+2)
		must(t, err)
		s.add(id)
	}
	if s.has(first) || len(s.known) != mostStrangers || len(s.order) != mostStrangers {
		t.Errorf("%d are remembered", len(s.known))
	}
}
