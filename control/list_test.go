package control

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

func TestListOfTheAPI(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var ids []string
	for range 3 {
		ids = append(ids, r.submit().id.String())
	}
	r.take(ids[1]).start()
	r.take(ids[0]).start().finish()
	media := r.do("POST", "/media/decode", `{"title":"a film"}`).header.Get(operationHeader)
	stranger := r.foreign("media-other").String()
	number := r.take(ids[2]).id.Sequence()
	newest := []string{media, ids[2], ids[1], ids[0]}
	for path, want := range map[string][]string{
		"?group=testrouter":                newest[1:],
		"?status=queued":                   {media, ids[2]},
		"?state=queued":                    {media, ids[2]},
		"?status=running,completed":        {stranger, ids[1], ids[0]},
		"?status=running&status=queued":    {stranger, media, ids[2], ids[1]},
		"?status=completed":                {ids[0]},
		"?result=success":                  {ids[0]},
		"?result=failure":                  {},
		"?job=decode":                      {media},
		"?job=media/decode":                {media},
		"?group=media":                     {stranger, media},
		"?endpoint=media-decode":           {media},
		"?q=A+FILM":                        {media},
		"?q=" + ids[0]:                     {ids[0]},
		"?since=1h&group=testrouter":       newest[1:],
		"?until=1h":                        {},
		"?until=2001-02-03T04:05:06+01:00": {}, // its plus is decoded as a space
		"?until=2001-02-03+04:05:06":       {},
		"?since=2001-02-03T04:05:06%2B01:00&group=testrouter": newest[1:],
		"?state=completed&status=queued&group=testrouter":     {ids[2], ids[0]},
		"?updated_since=1h&job=decode":                        {media},
		"?limit=0&group=testrouter":                           {},
		"?offset=1&group=testrouter":                          newest[2:],
		"?group=nothing":                                      {},
		"?key=x":                                              {},
		"?tag=x":                                              {},
		"?lane=x":                                             {},
		"?day=2001-01-01":                                     {},
		fmt.Sprintf("?number=%d", number):                     {ids[2]},
	} {
		a := r.get("/api/v1/operations" + path)
		got := []string{}
		for _, op := range items(a.json(t)["operations"]) {
			got = append(got, fmt.Sprint(op["id"]))
		}
		if b := r.listed(path); a.body != b.body || a.header.Get("X-Total-Count") != b.header.Get("X-Total-Count") {
			t.Errorf("%s: %s\nthe listing says %s", path, a.body, b.body)
		}
		// the times of foreign operations have no fractions
		sameSecond := strings.Contains(path, "running") || strings.Contains(path, "group=media")
		if fmt.Sprint(sorted(got, sameSecond)) != fmt.Sprint(sorted(want, sameSecond)) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
		total := strconv.Itoa(len(want))
		switch {
		case strings.HasPrefix(path, "?limit=0"):
			total = "3"
		case strings.HasPrefix(path, "?offset"):
			total = "3"
		}
		if a.header.Get("X-Total-Count") != total || a.header.Get("X-Total-Count-Exact") != "true" {
			t.Errorf("%s: total %s, exact %s, want %s", path, a.header.Get("X-Total-Count"),
				a.header.Get("X-Total-Count-Exact"), total)
		}
	}
	for _, bad := range []string{
		"?limit=201", "?limit=-1", "?limit=x", "?status=resting", "?next=x", "?x=1", "?number=0", "?number=r1",
		"?result=maybe", "?sort=size",
		"?since=yesterday", "?until=-1h", "?updated_since=x", "?day=x", "?offset=100001", "?after=" + ids[0],
		"?offset=-1", "?limit=99999999999999999999", "?status=completed,", "?sort=created,updated",
		"?job=decode&job=streaming01", "?limit=1&limit=2",
		"?since=2025-11-26T13:07:00", "?until=2025-11-26+25:00:00", "?next=" + strings.Repeat("A", 1000),
	} {
		r.problem(r.get("/api/v1/operations"+bad), 400, "arameter")
	}
}

// listed is the list made by a listing of jobs/, without the daemon's live table.
func (r *rig) listed(path string) reply {
	status, _ := r.config.Daemon.Live.(*daemonStatus)
	only := func(so bool) {
		status.mu.Lock()
		defer status.mu.Unlock()
		status.listing = so
	}
	only(true)
	defer only(false)
	return r.get("/api/v1/operations" + path)
}

func sorted(ids []string, so bool) []string {
	if !so {
		return ids
	}
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		at := len(out)
		for i, other := range out {
			if id < other {
				at = i
				break
			}
		}
		out = append(out[:at], append([]string{id}, out[at:]...)...)
	}
	return out
}

func TestPagesOfTheAPI(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var want []string
	for i := range 7 {
		w := r.submit()
		if i%2 == 0 {
			w.start().finish()
		}
		want = append([]string{w.id.String()}, want...)
	}
	for _, sort := range []string{"", "&sort=updated"} {
		var got []string
		for next := ""; ; {
			out := r.get("/api/v1/operations?limit=3" + sort + next).json(t)
			if out["total"] != 7.0 {
				t.Errorf("total %v", out["total"])
			}
			for _, op := range items(out["operations"]) {
				got = append(got, fmt.Sprint(op["id"]))
			}
			if out["next"] == nil {
				break
			}
			next = "&next=" + fmt.Sprint(out["next"])
		}
		if strings.Join(got, " ") != strings.Join(want, " ") && sort == "" || len(got) != 7 {
			t.Errorf("%s: %v", sort, got)
		}
	}
	token := fmt.Sprint(r.get("/api/v1/operations?limit=3").json(t)["next"])
	r.problem(r.get("/api/v1/operations?sort=updated&next="+token), 400, "the same sort")
}

// TestEndedOperationInList checks that a list has the same values as the record.
func TestEndedOperationInList(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.finish()
	op := items(r.get("/api/v1/operations").json(t)["operations"])[0]
	rec := r.get(w.path("")).json(t)
	for _, name := range []string{
		"id", "group", "job", "endpoint", "state", "status", "result", "finished_seq",
		"finished_at", "created_at",
	} {
		if op[name] != rec[name] && !strings.HasSuffix(name, "_at") || op[name] == nil {
			t.Errorf("%s: %v, the record says %v", name, op[name], rec[name])
		}
	}
	if fmt.Sprint(op["params"]) != fmt.Sprint(rec["params"]) {
		t.Errorf("params %v", op["params"])
	}
}

// TestListDuringRenameAndEnd lists an operation during the rename of its marker, and no ended operation.
func TestListDuringRenameAndEnd(t *testing.T) {
	t.Parallel()
	r := setup(t)
	moving, over := r.submit(), r.submit().start()
	status, _ := r.config.Daemon.Live.(*daemonStatus)
	for _, w := range []*work{moving, over} {
		rec, err := r.tree.ReadRecord(w.id)
		must(t, err)
		row := history.RowOf(rec)
		status.mu.Lock()
		status.live = append(status.live, history.Live{ID: w.id, State: rec.Status, Row: row.Pack()})
		status.mu.Unlock()
	}
	over.finish() // the daemon still has it in memory
	out := r.get("/api/v1/operations").json(t)
	if ops := items(out["operations"]); len(ops) != 2 || ops[0]["status"] != "completed" || ops[1]["status"] != "queued" ||
		out["total"] != 2.0 {
		t.Errorf("%v", out)
	}
	if out := r.get("/api/v1/operations?status=queued,running").json(t); out["total"] != 1.0 {
		t.Errorf("%v", out)
	}
	for _, path := range []string{"", "?status=queued", "?status=running", "?sort=updated", "?limit=1"} {
		if a, b := r.get("/api/v1/operations"+path), r.listed(path); a.body != b.body {
			t.Errorf("%s: %s\nthe listing says %s", path, a.body, b.body)
		}
	}
}

// arriving is a daemon that knows an operation whose submit has not made the marker yet.
type arriving struct {
	*daemonStatus
	row history.Packed
}

func (a *arriving) LiveIndex() (*history.LiveIndex, []history.Live, func(statefs.ID) statefs.NameSet, bool) {
	rows, unsettled, names, ok := a.daemonStatus.LiveIndex()
	if ok {
		rows.Put(a.row)
	}
	return rows, unsettled, names, ok
}

// TestListDuringASubmit lists operations while one is being submitted, also while the index is built. That one has no
// marker yet, and its client no answer.
func TestListDuringASubmit(t *testing.T) {
	t.Parallel()
	for _, built := range []bool{true, false} {
		r := setup(t, func(c *Config) {
			status, _ := c.Daemon.Live.(*daemonStatus)
			id, err := statefs.MakeID("testrouter-streaming01", time.Now(), os.Getpid(), 900_000)
			must(t, err)
			row := history.Row{ID: id, Group: "testrouter", Job: "streaming01", Status: statefs.Queued, Created: time.Now()}
			c.Daemon.Live = &arriving{status, row.Pack()}
			if !built {
				must(t, c.History.Sync(t.Context()))
				must(t, os.Rename(filepath.Join(status.owner.Dir(), history.FileName), filepath.Join(status.owner.Dir(), "other")))
				c.History, err = history.Open(status.owner, nil) // without running it
				must(t, err)
			}
		})
		if !built {
			defer func() { must(t, r.config.History.Close()) }()
		}
		w := r.submit()
		a := r.get("/api/v1/operations?status=queued")
		if a.status != 200 {
			t.Fatalf("built %v: %d %s", built, a.status, a.body)
		}
		if ops := items(a.json(t)["operations"]); len(ops) != 1 || ops[0]["id"] != w.id.String() {
			t.Errorf("built %v: %v", built, ops)
		}
	}
}

func TestIndexBeingBuilt(t *testing.T) {
	t.Parallel()
	var index *history.Store
	r := setup(t, func(c *Config) {
		status, _ := c.Daemon.Live.(*daemonStatus)
		owner := status.owner
		must(t, c.History.Sync(t.Context()))
		var err error
		_ = os.Rename(filepath.Join(owner.Dir(), history.FileName), filepath.Join(owner.Dir(), "other"))
		index, err = history.Open(owner, nil) // without running it
		must(t, err)
		c.History = index
	})
	defer func() { must(t, index.Close()) }()
	w := r.submit()
	for _, path := range []string{"/api/v1/operations", "/api/v1/operations?status=completed", "/api/v1/finished"} {
		a := r.get(path)
		r.problem(a, 503, "being built")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	if a := r.get("/readyz"); a.status != 200 || !strings.Contains(fmt.Sprint(a.json(t)["history"]), "being built") {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
	if out := r.get("/api/v1/operations?status=queued").json(t); out["total"] != 1.0 {
		t.Errorf("what lives: %v", out)
	}
	if out := r.get(fmt.Sprintf("/api/v1/operations?number=%d", w.id.Sequence())).json(t); out["total"] != 1.0 {
		t.Errorf("by number: %v", out)
	}
	if a := r.get(w.path("")); a.status != 200 {
		t.Errorf("by ID: %d %s", a.status, a.body)
	}
	never, err := statefs.MakeID("testrouter-never", time.Now(), w.id.PID(), w.id.Sequence())
	must(t, err)
	r.problem(r.get("/api/v1/operations/"+never.String()), 404, "not found")
}

// A number alone does not make an ID one of this storage: only operations deleted or pruned here are gone.
func TestOnlyWhatWasDeletedIsGone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	deleted, pruned := r.submit().start(), r.submit().start()
	deleted.finish()
	pruned.finish()
	number, pid, endpoint := deleted.id.Sequence(), deleted.id.PID(), deleted.id.Endpoint()
	if a := r.do("DELETE", deleted.path(""), ""); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	status, _ := r.config.Daemon.Live.(*daemonStatus)
	status.keep = history.Retention{Age: time.Nanosecond}
	if out := r.do("POST", "/api/v1/prune", "").json(t); out["count"] != 1.0 {
		t.Fatalf("%v", out)
	}
	for name, of := range map[string]struct {
		endpoint string
		at       time.Time
		pid      int
	}{
		"another name":    {"testrouter-other", time.Now(), pid},
		"another day":     {endpoint, time.Now().AddDate(0, 0, -3), pid},
		"another process": {endpoint, time.Now(), pid + 1},
	} {
		never, err := statefs.MakeID(of.endpoint, of.at, of.pid, number)
		must(t, err)
		path := "/api/v1/operations/" + never.String()
		for _, a := range []reply{
			r.get(path), r.get(path + "/stream"), r.get(path + "/log"),
			r.do("POST", path+"/cancel", ""), r.do("POST", path+"/retry", ""), r.do("DELETE", path, ""),
		} {
			if a.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	}
	for _, op := range []*work{deleted, pruned} {
		r.problem(r.get(op.path("")), 410, "is gone")
		r.problem(r.do("DELETE", op.path(""), ""), 410, "is gone")
	}
}

func TestFeedOfTheAPI(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if out := r.get("/api/v1/finished").json(t); len(items(out["finished"])) != 0 || out["last"] == nil {
		t.Errorf("%v", out)
	}
	works := []*work{r.submit().start(), r.submit().start(), r.submit().start()}
	works[1].finish()
	works[0].finish()
	first := r.get("/api/v1/finished?limit=1&wait=1m").json(t)
	ends := items(first["finished"])
	if len(ends) != 1 || ends[0]["id"] != works[1].id.String() || ends[0]["finished_seq"] != first["last"] ||
		ends[0]["result"] != "success" {
		t.Fatalf("%v", first)
	}
	second := r.get(fmt.Sprintf("/api/v1/finished?wait=1m&after=%.0f", first["last"])).json(t)
	if ends = items(second["finished"]); len(ends) != 1 || ends[0]["id"] != works[0].id.String() {
		t.Fatalf("%v", second)
	}
	third := make(chan reply, 1)
	go func() { third <- r.get(fmt.Sprintf("/api/v1/finished?wait=1m&after=%.0f", second["last"])) }()
	works[2].finish()
	select {
	case a := <-third:
		if ends = items(a.json(t)["finished"]); len(ends) != 1 || ends[0]["id"] != works[2].id.String() {
			t.Errorf("%s", a.body)
		}
	case <-time.After(patience):
		t.Error("the feed slept on")
	}
	for _, bad := range []string{
		"?after=x", "?limit=0", "?limit=1001", "?wait=soon", "?x=1", "?after=999999", "?after=-1",
		"?wait=-1s", "?wait=11m", "?after=0&after=1", "?after=18446744073709551616",
	} {
		r.problem(r.get("/api/v1/finished"+bad), 400, "arameter")
	}
}

func TestDeletePinPrune(t *testing.T) {
	t.Parallel()
	r := setup(t)
	live, ended, other := r.submit().start(), r.submit().start(), r.submit().start()
	ended.finish()
	other.finish()
	never, err := statefs.MakeID("testrouter-streaming01", time.Now(), 1, 900_000)
	must(t, err)
	r.problem(r.do("DELETE", live.path(""), ""), 409, "is running")
	r.problem(r.do("DELETE", "/api/v1/operations/"+r.foreign("media-other").String(), ""), 409, "another program")
	r.problem(r.do("DELETE", "/api/v1/operations/"+never.String(), ""), 404, "not found")
	r.problem(r.do("DELETE", "/api/v1/operations/x", ""), 400, "not an operation ID")
	if out := r.do("POST", ended.path("/pin"), "").json(t); out["pinned"] != true {
		t.Errorf("%v", out)
	}
	r.problem(r.do("DELETE", ended.path(""), ""), 409, "pinned")
	r.problem(r.do("DELETE", ended.path("?dry_run=true"), ""), 400, "Unknown parameter 'dry_run'; none is known here")
	if op := r.get(ended.path("")).json(t); op["pinned"] != true {
		t.Errorf("%v", op)
	}
	r.problem(r.do("POST", ended.path("/pin?pinned=maybe"), ""), 400, "'pinned'")
	if a := r.do("POST", ended.path("/pin?pinned=false"), ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.do("DELETE", ended.path(""), ""); a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"", "/stream", "/log", "/artifacts/a"} {
		r.problem(r.get(ended.path(path)), 410, "is gone")
	}
	r.problem(r.do("DELETE", ended.path(""), ""), 410, "is gone")
	r.problem(r.do("POST", ended.path("/pin"), ""), 410, "is gone")
	r.problem(r.get("/testrouter/control?action=pause&id="+ended.id.String()), 410, "is gone")
	r.problem(r.do("POST", ended.path("/cancel"), ""), 410, "is gone")

	status, _ := r.config.Daemon.Live.(*daemonStatus)
	status.keep = history.Retention{Age: time.Nanosecond}
	if out := r.do("POST", "/api/v1/prune?dry_run", "").json(t); out["dry_run"] != true {
		t.Errorf("dry_run without a value: %v", out)
	}
	plan := r.do("POST", "/api/v1/prune?dry_run=true", "").json(t)
	if ops := items(plan["operations"]); len(ops) != 1 || ops[0]["id"] != other.id.String() || ops[0]["reason"] != "age" ||
		plan["dry_run"] != true {
		t.Errorf("%v", plan)
	}
	if a := r.get(other.path("")); a.status != 200 {
		t.Errorf("a dry run deleted: %d", a.status)
	}
	if out := r.do("POST", "/api/v1/prune", "").json(t); out["count"] != 1.0 {
		t.Errorf("%v", out)
	}
	r.problem(r.get(other.path("")), 410, "is gone")
	r.problem(r.do("POST", "/api/v1/prune?dry_run=maybe", ""), 400, "dry_run")
	r.problem(r.do("POST", "/api/v1/prune", `{"dry_run": true}`), 400,
		"A body means nothing here: dry_run is a parameter, as in /api/v1/prune?dry_run=true")
}
