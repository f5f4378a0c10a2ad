package submit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

const jobs = `
group: g
name: return
params: {a: {type: string}, b: {type: integer, default: 1}}
run: [x]
---
group: g
name: reject
params: {a: {type: string}}
unique: {on_hit: reject}
run: [x]
---
group: g
name: next
params: {a: {type: string}}
unique: {on_hit: next}
run: [x]
---
group: g
name: "off"
params: {a: {type: string}}
unique: {on_hit: off}
run: [x]
---
group: g
name: by
params: {a: {type: string}, b: {type: integer, default: 1}}
unique: {by: [a]}
run: [x]
`

// desk is an intake over real files. The test plays the daemon.
type desk struct {
	*testing.T
	tree  *statefs.Tree
	owner *statefs.Owner
	in    *Intake
	defs  map[string]*catalog.Definition
	now   time.Time
}

func newDesk(t *testing.T, change ...func(*Config)) *desk {
	t.Helper()
	d := &desk{T: t, defs: map[string]*catalog.Definition{}, now: time.Now()}
	var err error
	d.tree, err = statefs.Open(t.TempDir(), statefs.Options{
		Durability: statefs.Process,
		Now:        func() time.Time { return d.now },
	})
	d.must(err)
	t.Cleanup(func() { d.must(d.tree.Close()) })
	d.owner, err = statefs.Own(d.tree)
	d.must(err)
	t.Cleanup(func() { d.must(d.owner.Release()) })
	defs, err := catalog.Parse("jobs.yaml", []byte(jobs))
	d.must(err)
	for _, def := range defs {
		d.defs[def.Name] = def
	}
	d.restart(change...)
	return d
}

// restart replaces the intake by an intake that knows only the live records.
func (d *desk) restart(change ...func(*Config)) {
	d.Helper()
	config := Config{Tree: d.tree}
	for _, c := range change {
		c(&config)
	}
	d.in = NewIntake(config)
	listing, err := d.tree.List()
	d.must(err)
	for _, m := range listing.Markers {
		rec, err := d.tree.ReadRecord(m.ID)
		d.must(err)
		d.in.Track(rec)
	}
	d.in.Ready()
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) request(job, params string, change ...func(*Request)) Request {
	d.Helper()
	p, err := d.defs[job].BindJSON([]byte(params))
	d.must(err)
	r := Request{Definition: d.defs[job], Params: p}
	for _, c := range change {
		c(&r)
	}
	return r
}

func (d *desk) submit(job, params string, change ...func(*Request)) Outcome {
	d.Helper()
	out, err := d.in.Submit(d.Context(), d.request(job, params, change...))
	d.must(err)
	return out[0]
}

// want submits and compares: a nil operation is a new one.
func (d *desk) want(what, job, params string, same *Outcome, change ...func(*Request)) Outcome {
	d.Helper()
	got := d.submit(job, params, change...)
	switch {
	case same == nil && !got.New:
		d.Errorf("%s: %s again", what, got.Record.ID)
	case same != nil && (got.New || got.Record.ID != same.Record.ID):
		d.Errorf("%s: %s (new: %t), want %s", what, got.Record.ID, got.New, same.Record.ID)
	}
	return got
}

// move has an operation in another state, with as many starts.
func (d *desk) move(o Outcome, to statefs.State, starts int) {
	d.Helper()
	from, err := d.tree.State(o.Record.ID)
	d.must(err)
	rec, err := d.tree.ReadRecord(o.Record.ID)
	d.must(err)
	rec.Status, rec.Starts = to, starts
	d.must(d.owner.WriteRecord(rec))
	if from != to {
		d.must(d.owner.Move(o.Record.ID, from, to))
	}
}

func (d *desk) end(o Outcome, status statefs.State) {
	d.Helper()
	from, err := d.tree.State(o.Record.ID)
	d.must(err)
	rec, err := d.tree.ReadRecord(o.Record.ID)
	d.must(err)
	rec.Status, rec.FinishedSeq = status, 1
	d.must(d.owner.WriteEnd(rec))
	d.must(d.owner.RemoveMarker(rec.ID, from))
	d.in.Forget(rec)
}

func key(k string) func(*Request) { return func(r *Request) { r.Options.IdempotencyKey = k } }
func fresh(r *Request)            { r.ForceNew = true }

func TestEqualWorkIsOneOperation(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.want("the first", "return", `{"a":"x"}`, nil)
	d.want("the same", "return", `{"b":1,"a":"x"}`, &first)
	d.want("others", "return", `{"a":"x","b":2}`, nil)
	d.want("another job", "reject", `{"a":"x"}`, nil)
	stream := d.want("fresh", "return", `{"a":"x"}`, nil, fresh)
	d.want("the oldest one", "return", `{"a":"x"}`, &first)
	d.restart()
	d.want("after a restart", "return", `{"a":"x"}`, &first)
	d.end(first, statefs.Completed)
	d.want("the fresh one is left", "return", `{"a":"x"}`, &stream)
	d.end(stream, statefs.Failed)
	again := d.want("all have ended", "return", `{"a":"x"}`, nil)
	d.end(again, statefs.Cancelled)
	d.restart()
	d.want("all have ended before a restart", "return", `{"a":"x"}`, nil)

	one := d.want("off", "off", `{}`, nil)
	if two := d.want("off, again", "off", `{}`, nil); two.Record.RequestHash != one.Record.RequestHash {
		t.Error("equal work has other hashes")
	}
	by := d.want("by", "by", `{"a":"x"}`, nil)
	d.want("by, others", "by", `{"a":"x","b":9}`, &by)
	if by.Record.CanonicalParams != `{"a":"x"}` || string(by.Record.Params) != `{"a":"x","b":1}` {
		t.Errorf("hashed %s of %s", by.Record.CanonicalParams, by.Record.Params)
	}
}

// The marker decides whether an operation is returned, whatever the record and the index contain.
func TestStatesThatBlockDuplicates(t *testing.T) {
	t.Parallel()
	for _, state := range statefs.LiveStates() {
		d := newDesk(t)
		first := d.submit("return", `{}`)
		d.move(first, state, 1)
		var want *Outcome
		if slices.Contains([]statefs.State{
			statefs.Scheduled, statefs.Queued, statefs.Running, statefs.Paused,
			statefs.FailedRetryable,
		}, state) {
			want = &first
		}
		got := d.want(string(state), "return", `{}`, want)
		if want != nil && got.State != state {
			t.Errorf("%s: it is shown as %s", state, got.State)
		}
	}
	d := newDesk(t)
	first := d.submit("return", `{}`)
	rec, err := d.tree.ReadRecord(first.Record.ID)
	d.must(err)
	rec.Status = statefs.Completed
	d.must(d.owner.WriteEnd(rec)) // and the marker is still to go
	d.want("the end is on disk", "return", `{}`, nil)
}

func TestReject(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.submit("reject", `{}`)
	_, err := d.in.Submit(t.Context(), d.request("reject", `{}`))
	if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.ID != first.Record.ID {
		t.Errorf("the same again: %v", err)
	}
	d.end(first, statefs.Completed)
	d.want("it has ended", "reject", `{}`, nil)
}

func TestNext(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.want("the first", "next", `{}`, nil)
	d.want("it waits", "next", `{}`, &first)
	d.move(first, statefs.Paused, 0)
	d.want("it is held", "next", `{}`, &first)
	d.move(first, statefs.Running, 1)
	if _, err := d.in.Submit(t.Context(), d.request("next", `{}`, func(r *Request) {
		r.Options.After, r.Options.Require = []statefs.ID{first.Record.ID}, statefs.RequireSuccess
	})); err == nil || !strings.Contains(err.Error(), "'require'") {
		t.Errorf("a successor that needs a success: %v", err)
	}
	second := d.want("it runs", "next", `{}`, nil)
	if !slices.Equal(second.Record.After, []statefs.ID{first.Record.ID}) || second.Record.Require != statefs.RequireEnd {
		t.Errorf("the successor waits for %v, %s", second.Record.After, second.Record.Require)
	}
	d.want("one waits", "next", `{}`, &second)
	d.move(first, statefs.Paused, 1)
	d.want("one waits, the other is paused", "next", `{}`, &second)
	d.end(first, statefs.Completed)
	d.want("the first has ended", "next", `{}`, &second)
	d.move(second, statefs.Running, 1)
	d.want("the second runs", "next", `{}`, nil)
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.want("the first", "off", `{"a":"x"}`, nil, key("k"))
	if first.Record.IdempotencyKey != "k" {
		t.Errorf("the record has the key %q", first.Record.IdempotencyKey)
	}
	d.want("the same key", "off", `{"a":"x"}`, &first, key("k"))
	d.want("another key", "off", `{"a":"x"}`, nil, key("l"))
	for what, r := range map[string]Request{
		"other parameters": d.request("off", `{"a":"y"}`, key("k")),
		"another job":      d.request("reject", `{"a":"x"}`, key("k")),
	} {
		_, err := d.in.Submit(t.Context(), r)
		if reused, ok := errors.AsType[*KeyReusedError](err); !ok || reused.ID != first.Record.ID {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.end(first, statefs.Failed)
	got := d.want("it has ended", "off", `{"a":"x"}`, &first, key("k"))
	if got.State != statefs.Failed {
		t.Errorf("it is shown as %s", got.State)
	}
	d.restart()
	d.want("it has ended before a restart", "off", `{"a":"x"}`, &first, key("k"))
	d.now = d.now.Add(DefaultKeyAge + time.Second)
	d.want("the time is over", "off", `{"a":"x"}`, nil, key("k"))

	live := d.want("one without a key", "return", `{}`, nil)
	d.want("a new key of equal work", "return", `{}`, &live, key("m"))
	d.end(live, statefs.Completed)
	d.want("that key names what it found", "return", `{}`, &live, key("m"))

	by := d.want("by some parameters", "by", `{"a":"x"}`, nil, key("n"))
	if _, err := d.in.Submit(t.Context(), d.request("by", `{"a":"x","b":2}`, key("n"))); err == nil {
		t.Error("a key is taken for other parameters that do not count")
	}
	d.want("other parameters that do not count", "by", `{"a":"x","b":2}`, &by)
}

// A claim without an operation does not block its key.
func TestClaimsOfSubmitsThatWereCutOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	whole := statefs.RequestHash("g", "off", `{}`)
	draft := func() *statefs.Record {
		rec, err := d.tree.Draft(statefs.Submission{Group: "g", Job: "off"})
		d.must(err)
		return rec
	}
	d.must(d.tree.Keys.Claim(statefs.KeyClaim{Key: "before the record", ID: draft().ID, RequestHash: whole, At: d.now}))
	d.want("before the record", "off", `{}`, nil, key("before the record"))

	rec := draft()
	d.must(d.tree.Keys.Claim(statefs.KeyClaim{Key: "before the marker", ID: rec.ID, RequestHash: whole, At: d.now}))
	d.must(d.tree.Publish(rec))
	d.must(d.owner.RemoveMarker(rec.ID, statefs.Queued))
	second := d.want("before the marker", "off", `{}`, nil, key("before the marker"))
	d.want("and again", "off", `{}`, &second, key("before the marker"))

	rec = draft()
	d.must(d.tree.Keys.Claim(statefs.KeyClaim{Key: "cleared away", ID: rec.ID, RequestHash: whole, At: d.now}))
	d.must(d.tree.Publish(rec))
	d.must(rec.Apply(statefs.Queued, statefs.CauseMarkerMissing, d.now))
	rec.FinishedSeq = 2
	d.must(d.owner.WriteEnd(rec))
	d.must(d.owner.RemoveMarker(rec.ID, statefs.Queued))
	d.want("cleared away by a start", "off", `{}`, nil, key("cleared away"))
}

func TestLists(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	there := d.submit("return", `{"a":"there"}`)
	out, err := d.in.Submit(t.Context(),
		d.request("return", `{"a":"1"}`), d.request("return", `{"a":"there"}`), d.request("return", `{"a":"1"}`),
		d.request("off", `{}`),
		d.request("off", `{}`), d.request("off", `{}`, key("k")), d.request("off", `{}`, key("k")), d.request("next", `{}`),
		d.request("next", `{}`))
	d.must(err)
	var got []string
	for _, o := range out {
		got = append(got, strconv.FormatBool(o.New))
	}
	if want := "true false false true true true false true false"; strings.Join(got, " ") != want {
		t.Errorf("new are %s, want %s", got, want)
	}
	if out[1].Record.ID != there.Record.ID || out[2].Record.ID != out[0].Record.ID ||
		out[6].Record.ID != out[5].Record.ID || out[3].Record.ID == out[4].Record.ID {
		t.Errorf("outcomes %v", out)
	}
	before, err := d.tree.List()
	d.must(err)
	for what, last := range map[string]Request{
		"a rejection":      d.request("reject", `{}`),
		"a key, used else": d.request("off", `{"a":"z"}`, key("k")),
		"a missing parent": d.request("off", `{}`, func(r *Request) { r.Options.After = parseIDs(t, parent) }),
	} {
		_, err := d.in.Submit(t.Context(), d.request("reject", `{}`), d.request("off", `{}`, key("unused")), last)
		if wrong, ok := errors.AsType[*EntryError](err); !ok || wrong.Index != 2 {
			t.Errorf("%s: %v", what, err)
		}
	}
	after, err := d.tree.List()
	d.must(err)
	if len(after.Markers) != len(before.Markers) {
		t.Errorf("%d operations after refusals, %d before", len(after.Markers), len(before.Markers))
	}
	d.want("nothing is left of a refused list", "reject", `{}`, nil)
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	busy := &BusyError{Text: "full", Full: true}
	var asked []int
	d := newDesk(t, func(c *Config) {
		c.Admit = func(fresh []*statefs.Record) error {
			if asked = append(asked, len(fresh)); len(asked) > 1 {
				return busy
			}
			return nil
		}
	})
	first := d.submit("return", `{}`)
	d.want("what is there needs no room", "return", `{}`, &first)
	if _, err := d.in.Submit(t.Context(), d.request("return", `{}`), d.request("off", `{}`),
		d.request("off", `{}`)); !errors.Is(err, busy) {
		t.Errorf("no room: %v", err)
	}
	if !slices.Equal(asked, []int{1, 2}) {
		t.Errorf("asked for %v", asked)
	}
}

// Two hundred at once come to one operation, and so on after it has ended.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for round := range 3 {
		var mu sync.Mutex
		var made []Outcome
		ids := map[statefs.ID]bool{}
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				var change []func(*Request)
				if i%4 == 0 {
					change = append(change, key(fmt.Sprint("key ", round)))
				}
				out, err := d.in.Submit(context.Background(), d.request("return", `{"a":"x"}`, change...))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if ids[out[0].Record.ID] = true; out[0].New {
					made = append(made, out[0])
				}
			})
		}
		all.Wait()
		if len(made) != 1 || len(ids) != 1 {
			t.Fatalf("round %d: %d were new, %d different ones", round, len(made), len(ids))
		}
		d.end(made[0], statefs.Completed)
	}
	if len(d.in.dedup.one)+len(d.in.dedup.more)+len(d.in.claims.held) != 0 {
		t.Errorf("the intake still knows %v %v %v", d.in.dedup.one, d.in.dedup.more, d.in.claims.held)
	}
	d.in.unsynced.Range(func(id, _ any) bool {
		t.Errorf("%v still counts as not durable", id)
		return true
	})
}

func TestSubmitsWaitForTheDaemon(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.in = NewIntake(Config{Tree: d.tree})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	cancel(gone)
	if _, err := d.in.Submit(ctx, d.request("off", `{}`)); !errors.Is(err, gone) {
		t.Errorf("before the daemon is ready: %v", err)
	}
	d.in.Ready()
	d.in.Ready()
	claimed := []hashPrefix{{1}}
	if d.in.claims.acquire(claimed) != nil {
		t.Fatal("a free claim is taken")
	}
	hash, _ := hashPrefixOf(statefs.RequestHash("g", "return", `{"b":1}`))
	if d.in.claims.acquire([]hashPrefix{hash, {2}}) != nil {
		t.Fatal("a free claim is taken")
	}
	if _, err := d.in.Submit(ctx, d.request("return", `{}`)); !errors.Is(err, gone) {
		t.Errorf("while an equal one is under way: %v", err)
	}
}

// What another process has submitted is made durable before it is the answer.
func TestSubmitsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rec, err := d.tree.Draft(statefs.Submission{Group: "g", Job: "return", Params: json.RawMessage(`{"b":1}`)})
	d.must(err)
	d.must(d.tree.Publish(rec))
	d.in.Track(rec)
	unsynced := func(id statefs.ID) bool {
		_, is := d.in.unsynced.Load(id)
		return is
	}
	if !unsynced(rec.ID) {
		t.Error("it counts as durable")
	}
	d.want("the same", "return", `{}`, &Outcome{Record: rec})
	if unsynced(rec.ID) {
		t.Error("it does not count as durable")
	}
	own := d.submit("off", `{}`)
	if d.in.Track(own.Record); unsynced(own.Record.ID) {
		t.Error("one of its own counts as not durable")
	}
	old := *rec
	old.RequestHash = "" // of an earlier version
	d.in.Track(&old)
	d.in.Forget(&old)
}

func TestAfterWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.in.Submit(t.Context(), d.request("off", `{}`, func(r *Request) { r.Options.After = parseIDs(t, parent) }))
	if err == nil || !strings.Contains(err.Error(), "'after': there is no operation '"+parent+"'") ||
		errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a parent that never was: %v", err)
	}
	first := d.submit("off", `{}`)
	second := d.submit("off", `{}`, func(r *Request) { r.Options.After = []statefs.ID{first.Record.ID} })
	if second.Record.Require != statefs.RequireSuccess {
		t.Errorf("it requires %q", second.Record.Require)
	}
}
