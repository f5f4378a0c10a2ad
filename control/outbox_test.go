package control

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Status returns the value that a test has set.
func (d playedOutbox) Status() statefs.OutboxStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outbox
}

// Lines returns the entries on disk, as a daemon that knows all of them.
func (d playedOutbox) Lines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int) {
	d.mu.Lock()
	d.lastOutboxQuery = *q
	d.mu.Unlock()
	files, err := d.owner.Outbox.List()
	if err != nil {
		return nil, 0
	}
	for _, name := range slices.Concat(files.Pending, files.Manual) {
		if q.Of != nil && !q.Of(name.ID) {
			continue
		}
		if total++; len(page) < q.Limit {
			page = append(page, statefs.OutboxLine{
				Name: name, TargetName: "webhook https://x.example",
				CreatedAt: time.Unix(1764162420, 0), Target: &statefs.OutboxTarget{Down: true},
			})
		}
	}
	return page, total
}

// Reconcile does nothing; the tests act through the owner.
func (d playedOutbox) Reconcile(context.Context, statefs.EntryName) error {
	return d.reconcileErr
}

// Await waits for the attempt that a test simulates.
func (d playedOutbox) Await(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tries[name] == nil {
		return make(chan struct{}), func() {}
	}
	return d.tries[name], func() {}
}

// Request records its arguments, and fails for deliveries to a folder.
func (d playedOutbox) Request(_ context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
	args statefs.Args,
) (map[statefs.EntryName]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := make(map[statefs.EntryName]error)
	for _, name := range names {
		d.bulk = append(d.bulk, string(ask)+" "+name.String()+" "+args.By+" "+args.Reason)
		if name.Kind == "folder" {
			failed[name] = errors.New("there is nothing to do any more")
		}
	}
	return failed, nil
}

// withPendingDeliveries gives an ended operation three deliveries: a pending one, one for a person, and one without an
// entry.
func (r *rig) withPendingDeliveries() (w *work, names [3]statefs.EntryName) {
	r.t.Helper()
	w = r.submit().start()
	w.finish()
	rec, err := r.owner.ReadRecord(w.id)
	must(r.t, err)
	at := time.Date(2025, 11, 26, 13, 7, 0, 0, time.UTC)
	for i, kind := range []string{"webhook", "folder", "s3"} {
		names[i] = statefs.EntryName{ID: w.id, Place: i + 1, Kind: kind}
		it := statefs.Delivery{
			Place: i + 1, Kind: kind, Send: "result", State: statefs.DeliveryManual, Name: "name-" + kind,
			Error: "it would lead outside",
		}
		if i < 2 {
			must(r.t, r.owner.Outbox.Write(names[i], &statefs.OutboxEntry{
				Run: rec.Run, CreatedAt: at, Attempts: 3, LastAt: &at,
				LastError: "no answer",
			}))
		}
		if i == 0 {
			it.State, it.Error = statefs.DeliveryPending, ""
		}
		rec.Deliveries = append(rec.Deliveries, it)
	}
	must(r.t, r.owner.Outbox.Hold(names[1]))
	must(r.t, r.owner.AmendRecord(rec))
	return w, names
}

func TestOutboxIsListed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if a := r.get("/api/v1/outbox"); a.status != 200 || a.header.Get("X-Total-Count") != "0" ||
		!strings.Contains(a.body, `"entries":[]`) {
		t.Errorf("an empty one: %d %s", a.status, a.body)
	}
	w, _ := r.withPendingDeliveries()
	oldest := time.Now().Add(-90 * time.Second)
	r.fakeDaemon().outbox = statefs.OutboxStatus{
		Pending: 1, FailedManual: 1, OldestAt: &oldest,
		Targets: []statefs.OutboxTarget{{Name: "webhook https://x.example", Down: true}},
	}
	a := r.get("/api/v1/outbox")
	got := a.json(t)
	entries := items(got["entries"])
	age, _ := got["oldest_seconds"].(float64)
	if a.header.Get("X-Total-Count") != "2" || len(entries) != 2 || got["next"] != nil || age < 90 ||
		got["failed_manual"] != 1.0 {
		t.Fatalf("listed %s", a.body)
	}
	for name, want := range map[string]any{
		"entry": w.id.String() + ".1-webhook", "id": w.id.String(), "target": 1.0, "kind": "webhook",
		"at": "webhook https://x.example", "status": "pending", "attempts": 3.0, "send": "result",
		"name": "name-webhook", "last_error": "no answer", "target_down": true, "group": "testrouter", "job": "streaming01",
		"created_at": "2025-11-26T13:07:00Z",
	} {
		if entries[0][name] != want {
			t.Errorf("%s is %v, want %v", name, entries[0][name], want)
		}
	}
	if e := entries[1]; e["status"] != "failed_manual" || e["error"] != "it would lead outside" {
		t.Errorf("the second is %v", e)
	}
	first := r.get("/api/v1/outbox?limit=1").json(t)
	next, _ := first["next"].(string)
	if a := r.get("/api/v1/outbox?limit=1&next=" + next); a.status != 200 ||
		r.fakeDaemon().lastOutboxQuery.AfterName.String() != w.id.String()+".1-webhook" ||
		r.fakeDaemon().lastOutboxQuery.AfterAt.Unix() != 1764162420 {
		t.Errorf("goes on with %q: %d %+v", next, a.status, r.fakeDaemon().lastOutboxQuery)
	}
}

func TestOutboxIsFiltered(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w, _ := r.withPendingDeliveries()
	for query, want := range map[string]string{
		"job=streaming01": "2", "job=testrouter/streaming01": "2", "job=decode": "0", "job=streaming": "0",
		"endpoint=testrouter-streaming01": "2", "id=" + w.id.String(): "2",
		"endpoint=x&job=streaming01": "0",
	} {
		if a := r.get("/api/v1/outbox?limit=0&" + query); a.status != 200 || a.header.Get("X-Total-Count") != want {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	r.get("/api/v1/outbox?status=pending&status=failed_manual&kind=s3,webhook&target=x.ex&older_than=1h&limit=7")
	q := r.fakeDaemon().lastOutboxQuery
	if len(q.Statuses) != 2 || !slices.Equal(q.Kinds, []string{"s3", "webhook"}) || q.Target != "x.ex" ||
		time.Since(q.Before) < time.Hour || q.Limit != 7 {
		t.Errorf("the query is %+v", q)
	}
	for query, want := range map[string]string{
		"status=delivered": "'delivered' is none of [pending failed_manual]",
		"kind=mail":        "'mail' is none of [s3 webhook folder]", "older_than=old": "must be a time such as 90s",
		"next=x": "is not the member next", "id=x": "x", "limit=201": "from 0 to 200",
		"sort=created": "Unknown parameter 'sort'", "target=a&target=b": "give it once",
	} {
		if a := r.get("/api/v1/outbox?" + query); a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
}

func TestDeliveriesAreAskedFor(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w, names := r.withPendingDeliveries()
	asked := func(name statefs.EntryName) string {
		a, is, err := r.owner.Outbox.Requested(name)
		must(t, err)
		if !is {
			return ""
		}
		must(t, r.owner.Outbox.DropRequest(a))
		return string(a.Action) + " " + a.By + " " + a.Reason
	}
	a := r.do("POST", "/api/v1/outbox/"+names[1].String()+"/retry", `{"by": "anna", "reason": "it is back"}`)
	if got := asked(names[1]); a.status != 200 || got != "retry anna it is back" || asked(names[0]) != "" ||
		a.json(t)["message"] != "Retry requested for delivery 2 (folder) of operation '"+w.id.String()+"'" {
		t.Errorf("one: %d %s, asked is %q", a.status, a.body, got)
	}
	a = r.do("POST", "/api/v1/outbox/"+w.id.String()+"/retry", "")
	if got := [...]string{asked(names[0]), asked(names[1]), asked(names[2])}; a.status != 200 || got[0] == "" ||
		got[1] == "" || got[2] != "" || !strings.Contains(a.body, "2 deliveries") {
		t.Errorf("all: %d %s, asked is %q", a.status, a.body, got)
	}
	r.fakeDaemon().reconcileErr = errors.New("later")
	if a = r.do("POST", "/api/v1/outbox/"+w.id.String()+"/drop", ""); a.status != 202 ||
		len(items(a.json(t)["entries"])) != 3 || asked(names[2]) == "" || a.json(t)["pending"] != true {
		t.Errorf("drop all: %d %s", a.status, a.body)
	}
	live := r.submit().start()
	nobody := "testrouter-streaming01_2025-11-26_13-07-00_p1_r999999"
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		names[2].String() + "/retry":        {409, "cannot be tried again: it would lead outside; drop it"},
		w.id.String() + ".1-folder/retry":   {404, "has no delivery"},
		w.id.String() + ".9-webhook/retry":  {404, "has no delivery"},
		live.id.String() + "/drop":          {409, "has not ended"},
		nobody + "/drop":                    {404, "not found"},
		"x/drop":                            {400, "x"},
		w.id.String() + "/drop?wait=1s":     {400, "Unknown parameter 'wait'"},
		w.id.String() + "/retry?wait=soon":  {400, "Invalid parameter 'wait'"},
		w.id.String() + "/again":            {404, "There is nothing at"},
		w.id.String() + ".1-webhook.x/drop": {400, "x"},
	} {
		if a := r.do("POST", "/api/v1/outbox/"+path, ""); a.status != want.status || !strings.Contains(a.body, want.text) {
			t.Errorf("%s: %d %s, want %d %s", path, a.status, a.body, want.status, want.text)
		}
	}
	if a := r.do("POST", "/api/v1/outbox/"+w.id.String()+"/drop", `{"step": "x"}`); a.status != 400 {
		t.Errorf("a step: %d %s", a.status, a.body)
	}
	rec, err := r.owner.ReadRecord(w.id)
	must(t, err)
	for i := range rec.Deliveries {
		rec.Deliveries[i].State = statefs.DeliveryDelivered
	}
	must(t, r.owner.AmendRecord(rec))
	if a := r.do("POST", "/api/v1/outbox/"+names[0].String()+"/drop", ""); a.status != 409 ||
		!strings.Contains(a.body, "is delivered: nothing to do") {
		t.Errorf("a delivered one: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/api/v1/outbox/"+w.id.String()+"/drop", ""); a.status != 409 ||
		!strings.Contains(a.body, "nothing that waits") {
		t.Errorf("delivered ones: %d %s", a.status, a.body)
	}
	if left, err := filepath.Glob(filepath.Join(r.tree.Outbox.Dir(), "*_requested")); err != nil || len(left) != 2 {
		// the requests of the drop of all entries, which no daemon carried out
		t.Errorf("left are %v, %v", left, err)
	}
}

// A retry with a wait is answered when the entry was attempted, with the error of that attempt.
func TestRetryOfDeliveryWaits(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w, names := r.withPendingDeliveries()
	at := "/api/v1/outbox/" + w.id.String()
	first := func(a reply) map[string]any {
		t.Helper()
		return items(a.json(t)["entries"])[0]
	}
	a := r.do("POST", at+".1-webhook/retry?wait=1ms", "")
	if e := first(a); a.status != 202 || a.json(t)["pending"] != true || e["tried"] != false || e["error"] != nil {
		t.Errorf("not tried: %d %s", a.status, a.body)
	}
	done := make(chan struct{})
	close(done)
	r.fakeDaemon().tries = map[statefs.EntryName]chan struct{}{names[0]: done}
	a = r.do("POST", at+".1-webhook/retry?wait=10m", "")
	if e := first(a); a.status != 200 || a.json(t)["pending"] != nil || e["tried"] != true || e["status"] != "pending" ||
		e["error"] != "no answer" {
		t.Errorf("tried: %d %s", a.status, a.body)
	}
	a = r.do("POST", at+"/retry?wait=1ms", "")
	if e := first(a); a.status != 202 || e["tried"] != true || len(items(a.json(t)["entries"])) != 2 {
		t.Errorf("one of two: %d %s", a.status, a.body)
	}
	if a = r.do("POST", at+".1-webhook/retry", ""); a.status != 200 || first(a)["tried"] != nil {
		t.Errorf("without a wait: %d %s", a.status, a.body)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.finish()
	oldest := time.Now().Add(-time.Minute)
	d := r.fakeDaemon()
	d.counts = map[string]uint64{"finished": 1}
	d.outbox = statefs.OutboxStatus{
		Pending: 3, FailedManual: 2, OldestAt: &oldest, Targets: []statefs.OutboxTarget{{Name: "x", Down: true}, {Name: "y"}},
		Kinds: map[string]statefs.DeliveryCounts{"webhook": {Delivered: 7, Failed: 4, Bytes: 900}},
	}
	a := r.get("/metrics")
	text := a.body
	for _, want := range []string{
		"# TYPE jobdir_outbox_pending gauge\njobdir_outbox_pending 3\n", "jobdir_outbox_failed_manual 2\n",
		"jobdir_outbox_oldest_seconds 6", "jobdir_outbox_targets_down 1\n",
		"jobdir_outbox_attempts_total{kind=\"webhook\",outcome=\"failed\"} 4\n",
		"jobdir_outbox_delivered_bytes_total{kind=\"webhook\"} 900\n", "jobdir_ready 1\n",
		"# TYPE jobdir_finished_total counter\njobdir_finished_total 1\n", "jobdir_operations{status=\"completed\"} 1\n",
		"jobdir_info{version=",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it has no %q", want)
		}
	}
	if a.status != 200 || a.header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" ||
		strings.Contains(text, w.id.String()) {
		t.Errorf("%d %s\n%s", a.status, a.header.Get("Content-Type"), text)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		if name != "#" && (seen[name] || !strings.HasPrefix(name, "jobdir_")) {
			t.Errorf("%s is there twice, or is no metric", name)
		}
		seen[name] = true
	}
	m := new(metrics)
	m.sample("x", 1.5, "l", "a\"b\\c\nd", "k", "v")
	if want := "x{l=\"a\\\"b\\\\c\\nd\",k=\"v\"} 1.5\n"; m.text.String() != want {
		t.Errorf("escaped it is %s, want %s", m.text.String(), want)
	}
}

func TestDegraded(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 11, 26, 13, 7, 0, 0, time.UTC)
	long, short := now.Add(-70*time.Minute), now.Add(-59*time.Minute)
	out := &statefs.OutboxStatus{Targets: []statefs.OutboxTarget{
		{Name: "folder /a", Pending: 2, Down: true, OldestAt: &long, Error: "no room"},
		{Name: "folder /b", Pending: 2, Down: true, OldestAt: &short},
		{Name: "folder /c", OldestAt: &long},
	}}
	said := degraded(out, now)
	if len(said) != 1 ||
		said[0] != "folder /a is down: 2 deliveries wait for it, the oldest for 1h10m; the last error: no room" {
		t.Errorf("said is %q", said)
	}
	out.FailedManual = 3
	if said := degraded(out, now); len(said) != 2 || !strings.HasPrefix(said[1], "3 deliveries wait for a person") {
		t.Errorf("said is %q", said)
	}
	r := setup(t)
	r.fakeDaemon().outbox = *out
	if a := r.get("/readyz"); a.status != 200 || !strings.Contains(a.body, `"degraded":["folder /a is down`) {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
}
