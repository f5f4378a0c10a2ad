package control

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// foreignNumbered is foreign with a chosen number.
func (r *rig) foreignNumbered(number uint64) *work {
	r.t.Helper()
	id, err := statefs.MakeID("testrouter-own", time.Now(), os.Getppid(), number)
	must(r.t, err)
	must(r.t, os.WriteFile(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(id, statefs.Running)), nil, 0o640))
	return r.take(id.String())
}

// A foreign operation that has ended was never pruned, whatever its number, also if no client ever requested it.
func TestEndedForeignOperationIsNotGone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	gone := r.submit().start() // has the number 1
	gone.finish()
	if a := r.do("DELETE", gone.path(""), ""); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	stranger := r.foreignNumbered(1)
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(stranger.id, statefs.Running))))
	for _, action := range []string{"/cancel", "/skip"} {
		r.problem(r.do("POST", stranger.path(action), ""), 404,
			"Operation '"+stranger.id.String()+"' not found or already finished")
	}
	for _, a := range []reply{
		r.get(stranger.path("")), r.get(stranger.path("/stream")), r.do("POST", stranger.path("/retry"), ""),
		r.do("DELETE", stranger.path(""), ""),
	} {
		r.problem(a, 404, "Operation '"+stranger.id.String()+"' not found: the storage has no operation with this ID")
	}
	r.problem(r.get(gone.path("")), 410, "it was pruned or deleted")
	// A request for a deleted operation does not make it a foreign one.
	must(t, os.WriteFile(filepath.Join(r.tree.JobsDir(), statefs.RequestName(gone.id, statefs.Cancel)), nil, 0o640))
	r.problem(r.get(gone.path("")), 410, "it was pruned or deleted")
}

// A list looks for the record of a foreign marker once: a record file that appears later is not read.
func TestListsDoNotReadForeignOperationsAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ours := r.submit().start()
	stranger := r.foreignNumbered(999999)
	total := func(query string) string {
		t.Helper()
		return r.get("/api/v1/operations?" + query).header.Get("X-Total-Count")
	}
	if n := total("status=running"); n != "2" {
		t.Fatalf("%s are running", n)
	}
	rec, err := r.tree.ReadRecord(ours.id)
	must(t, err)
	rec.ID, rec.Tags = stranger.id, []string{"read"}
	must(t, r.owner.WriteRecord(rec))
	if n := total("tag=read"); n != "0" {
		t.Errorf("the record was read: %s have its tag", n)
	}
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(stranger.id, statefs.Running))))
	if n := total("status=running"); n != "1" {
		t.Errorf("%s are running without the marker", n)
	}
	if _, met := r.server.live.foreignIDs.Load(stranger.id); met {
		t.Error("it is remembered without a marker")
	}
}

// A list does not look at a foreign marker whose state the daemon knows: here there is no such file.
func TestListsDoNotLookAtForeignOperationsThatTheDaemonKnows(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id, err := statefs.MakeID("testrouter-own", time.Now(), os.Getppid(), 999999)
	must(t, err)
	status, _ := r.config.Daemon.Live.(*daemonStatus)
	status.mu.Lock()
	status.seen = []history.Live{{ID: id, State: statefs.Paused}}
	status.mu.Unlock()
	for range 2 {
		if n := r.get("/api/v1/operations?status=paused&limit=0").header.Get("X-Total-Count"); n != "1" {
			t.Errorf("%s are paused", n)
		}
	}
}

// The list of a group tries the record of a foreign marker once, and none to learn its group.
func TestGroupListsDoNotReadForeignOperationsAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ours := r.submit().start()
	strangers := []*work{r.foreignNumbered(999999), r.take(r.foreign("testrouter-other").String())}
	check := func() {
		t.Helper()
		foreign := 0
		for _, op := range items(r.get("/testrouter/operations").json(t)["operations"]) {
			if op["foreign"] == true {
				foreign++
			}
		}
		if foreign != len(strangers) {
			t.Errorf("%d operations are foreign, want %d", foreign, len(strangers))
		}
	}
	check()
	rec, err := r.tree.ReadRecord(ours.id)
	must(t, err)
	for _, w := range strangers {
		rec.ID, rec.Group = w.id, "read"
		must(t, r.owner.WriteRecord(rec))
	}
	check()
}

// The answer to a request about a foreign operation is that it is written and who has to act, not that it had no
// effect.
func TestActionsOnForeignOperations(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.foreignNumbered(999999)
	const says = "which belongs to another program: the request is in jobs/, and that program has to act on it"
	check := func(a reply, status int, state, effect any, message string) {
		t.Helper()
		out := a.json(t)
		text, _ := out["message"].(string)
		if a.status != status || out["foreign"] != true || out["state"] != state || out["took_effect"] != effect ||
			!strings.Contains(text, says+message) {
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
		r.until("the request is there", func() bool { return r.tree.Requested(w.id, statefs.Action(action)) })
		// as the other program does
		must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, statefs.Action(action)))))
	}
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, statefs.Pause))))
	ask("pause")
	must(t, os.Rename(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Running)),
		filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Paused))))
	w.settle(statefs.Paused, true)
	check(<-answers, 200, "paused", true, "")
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, statefs.Cancel))))
	ask("cancel")
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Paused))))
	w.settle("", false)
	check(<-answers, 200, nil, nil, "; it has ended since")
}
