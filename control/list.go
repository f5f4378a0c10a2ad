package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/machine"
)

const (
	maxListed     = 200
	defaultListed = 50
	// maxOffset bounds the parameter offset: the skipped rows are visited. Paging by next has no such bound.
	maxOffset = 100_000
)

// listParameters are the parameters of GET /api/v1/operations.
var listParameters = []front.Parameter{
	list("status", "only those with this status; several are separated by commas"),
	list("state", "the same as status"),
	flag("needs_attention",
		"only operations that need a person: failed_manual, waiting_approval, or with a failed optional step"),
	list("result", "only those with this result: success, partial, failure, cancelled; several are separated by commas"),
	text("job", "only those of this job, as JOB or GROUP/JOB"),
	text("group", "only those of this group"),
	text("endpoint", "only those of this endpoint name, {group}-{job}"),
	text("lane", "only those of this lane"),
	text("day", "only those whose ID has this day, as 2025-11-26"),
	text("key", "only those with this key"),
	text("tag", "only those with this tag"),
	number("number", "only those with this number at the end of the ID"),
	text("since",
		"created at or after this time: RFC 3339, 2025-11-26 13:07:00 in the zone of the daemon, a date, or a duration before now such as 2h or 7d"),
	text("until", "created before this time"),
	text("updated_since", "changed at or after this time"),
	text("q", "only those with this text in the ID, the first 2 KiB of the parameters, or the error; in any letter case"),
	choice("sort", []string{"created", "updated"}, "by what, the newest first; created when not given"),
	number("limit", "how many, 0 to 200; 0 is the count alone; 50 when not given"),
	number("offset", "how many to pass over, 100000 at most"),
	text("next", "where the page before ended: its member next"),
}

// lists are the resources that show many operations.
type lists struct {
	view    *viewer
	wait    *awaiter
	live    *liveTable
	history *history.Store
}

// operations is GET /api/v1/operations.
func (s *lists) operations(w *front.Response, r *front.Request) error {
	q, err := queryOf(r.Query(), time.Now())
	if err != nil {
		return err
	}
	starting := s.live.isStarting() // read first: a list made while the daemon starts may be incomplete
	if starting && q.Limit == 0 {
		return s.live.refuseAtStartup()
	}
	if total, ok, err := s.countOnly(q); ok || err != nil {
		if err != nil {
			return err
		}
		return s.sendList(w, &history.Page{Total: total, Exact: true}, []any{})
	}
	live, err := s.live.liveView(q)
	if err != nil {
		return err
	}
	page, err := s.history.List(r.Context(), q, live.LiveView)
	if errors.Is(err, history.ErrNotReady) && q.Number > 0 {
		return s.listByNumber(w, q.Number, err)
	}
	if err != nil {
		return err
	}
	page.Exact = page.Exact && !starting
	shown, err := s.show(page.Entries, live.names)
	if err != nil {
		return err
	}
	return s.sendList(w, &page, shown)
}

// show describes the operations of a page. names returns the names besides its marker that an operation may have.
func (s *lists) show(entries []history.Entry, names func(statefs.ID) statefs.NameSet) ([]any, error) {
	var mu sync.Mutex
	described := make(map[statefs.ID]any, len(entries))
	err := statefs.ForEachParallel(entries, statefs.ParallelLooks, func(entry history.Entry) (err error) {
		var op any
		if !entry.Live {
			op = newEnded(&entry.Row)
		} else if op, err = s.view.describeRow(&entry.Row, names(entry.Row.ID)); err != nil {
			if _, gone := errors.AsType[*front.RefusalError](err); gone || errors.Is(err, history.ErrNotReady) {
				return nil // its submit has not made the marker yet, or a foreign program has removed it since
			}
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		described[entry.Row.ID] = op
		return nil
	})
	shown := []any{}
	for i := range entries {
		if op, is := described[entries[i].Row.ID]; is {
			shown = append(shown, op)
		}
	}
	return shown, err
}

func (s *lists) sendList(w *front.Response, page *history.Page, shown []any) error {
	w.Header().Set("X-Total-Count", strconv.Itoa(page.Total))
	w.Header().Set("X-Total-Count-Exact", strconv.FormatBool(page.Exact))
	out := api.Page[any, *string]{Count: len(shown), Operations: shown, Total: page.Total, TotalExact: page.Exact}
	if page.Next != nil {
		out.Next = new(page.Next.String())
	}
	return w.SendJSON(http.StatusOK, out)
}

// listByNumber answers a list by number from disk while the index is not ready; notReady is that error.
func (s *lists) listByNumber(w *front.Response, number uint64, notReady error) error {
	live, err := s.live.list()
	if err != nil {
		return err
	}
	found, err := s.view.tree.FindRecent(number)
	if err != nil {
		return err
	}
	for _, op := range live {
		if op.id.Sequence() == number && !slices.Contains(found, op.id) {
			found = append(found, op.id)
		}
	}
	shown := []any{}
	for _, id := range found {
		if out, err := s.view.describe(id); err == nil {
			shown = append(shown, out)
		}
	}
	if len(shown) == 0 {
		return notReady // it may be an older operation, known only to the index
	}
	return s.sendList(w, &history.Page{Total: len(shown), Exact: true}, shown)
}

func newEnded(row *history.Row) api.Ended {
	out := api.Ended{
		FinishedSeq: row.Number, ID: row.ID, Group: row.Group, Job: row.Job, Endpoint: row.ID.Endpoint(),
		Lane: row.Lane, Tags: row.Tags,
		Key: row.Key, RetryOf: row.RetryOf, State: row.Status, Status: row.Status, Result: row.Result,
		NeedsPerson: row.NeedsPerson, Pinned: row.Pinned, CreatedAt: row.Created, UpdatedAt: row.Updated, Bytes: row.Bytes,
	}
	if !row.ParamsCut {
		out.Params = json.RawMessage(row.Params)
	}
	if row.Code != "" || row.Message != "" {
		out.Error = &statefs.Fault{Code: row.Code, Message: row.Message}
	}
	out.StartedAt, out.FinishedAt = statefs.OptionalTime(row.Started), statefs.OptionalTime(row.Finished)
	return out
}

// queryOf reads the parameters of a list.
func queryOf(in *front.Query, now time.Time) (*history.Query, error) {
	q := &history.Query{
		Job: in.Get("job"), Group: in.Get("group"), Lane: in.Get("lane"), Endpoint: in.Get("endpoint"),
		Key: in.Get("key"), Tag: in.Get("tag"), Text: in.Get("q"), Day: in.Get("day"),
		Statuses: slices.Concat(front.Choices(in, "status", statefs.States()), front.Choices(in, "state", statefs.States())),
		Results: front.Choices(in, "result", []statefs.Result{
			statefs.Success, statefs.Partial, statefs.Failure, statefs.CancelledResult,
		}),
		Limit:  int(in.Number("limit", defaultListed, 0, maxListed)),
		Offset: int(in.Number("offset", 0, 0, maxOffset)),
		Number: in.Number("number", 0, 1, 1e15),
		Sort:   history.ByCreated,
		Since:  timeFrom(in, "since", now), Until: timeFrom(in, "until", now), UpdatedSince: timeFrom(in, "updated_since", now),
	}
	if in.Boolean("needs_attention", false) {
		in.Refuse(narrowToAttention(q))
	}
	switch sorts := front.Choices(in, "sort", []history.Sort{history.ByCreated, history.ByUpdated}); {
	case len(sorts) > 1:
		in.Refuse(front.Invalid("sort", "%s must be one of %v", front.Quote(in.Get("sort")), sorts))
	case len(sorts) == 1:
		q.Sort = sorts[0]
	}
	if text := in.Get("next"); text != "" {
		var err error
		if q.After, err = history.ParseCursor(text); err != nil || !q.After.Of(q.Sort) {
			in.Refuse(front.Invalid("next", "%s: %s", front.Quote(text), history.ErrCursor))
		}
	}
	if _, err := time.Parse(time.DateOnly, q.Day); err != nil && q.Day != "" {
		in.Refuse(front.Invalid("day", "%s must be a date such as 2025-11-26", front.Quote(q.Day)))
	}
	return q, in.Err()
}

// narrowToAttention restricts the query to operations that wait for a person.
func narrowToAttention(q *history.Query) error {
	given := q.Statuses
	q.Statuses, q.Attention = nil, true
	for _, state := range statefs.LiveStates() {
		if len(given) == 0 || slices.Contains(given, state) {
			q.Statuses = append(q.Statuses, state)
		}
	}
	if len(q.Statuses) == 0 {
		return front.Invalid("needs_attention", "no operation with one of the given statuses %v waits for a person", given)
	}
	return nil
}

// timeFrom parses a time: RFC 3339, a date (local midnight), or a duration before now.
func timeFrom(in *front.Query, name string, now time.Time) (none time.Time) {
	text := in.Get(name)
	if text == "" {
		return none
	}
	// In a URL the plus of a zone is decoded as a space, unless the client escaped it.
	for _, text := range []string{text, strings.Replace(text, " ", "+", 1)} {
		if at, ok := history.ParseTime(text, now); ok {
			return at
		}
	}
	in.Refuse(front.Invalid(name,
		"%s must be a time (2025-11-26T13:07:00+01:00), a date (2025-11-26) or a duration before now (2h, 7d)", front.Quote(text)))
	return none
}

// Values of the parameter for; forEnd is the default.
const (
	forEnd     = "end"
	forRunning = string(statefs.Running)
)

// operation is GET /api/v1/operations/{id}.
func (s *lists) operation(w *front.Response, r *front.Request) error {
	id, q := idAndQuery(r)
	var runs []statefs.State
	switch q.Get("for") {
	case "", forEnd:
	case forRunning:
		runs = []statefs.State{statefs.Running}
	default:
		q.Refuse(front.Invalid("for", "%s must be %s or %s", front.Quote(q.Get("for")), forEnd, forRunning))
	}
	wait, applied := r.PreferredWait(q)
	if err := q.Err(); err != nil {
		return err
	}
	out, err := s.view.describe(id)
	if err != nil {
		return err
	}
	if wait > 0 && out.Record != nil && out.State.Live() && !slices.Contains(runs, out.State) &&
		(!out.State.NeedsPerson() || s.view.tree.UnblockRequested(id)) {
		out = s.wait.afterWait(r, out, wait, runs...)
	}
	if applied != "" {
		w.Header().Set("Preference-Applied", applied)
	}
	s.wait.setRetryAfter(w, out)
	return w.SendJSON(http.StatusOK, out)
}

// groupOperations is GET /{group}/operations.
func (s *lists) groupOperations(w *front.Response, r *front.Request) error {
	group := r.Param("group")
	q := r.Query()
	if err := q.Err(); err != nil {
		return err
	}
	all, err := s.live.list()
	if err != nil {
		return err
	}
	rows := []api.GroupRow{}
	endpoint := q.Get("endpoint")
	for _, op := range all {
		of, err := s.live.groupOf(op.id, op.foreign)
		if err != nil {
			return err
		}
		if !of.is(group) || (endpoint != "" && endpoint != of.endpoint && group+"-"+endpoint != of.endpoint) {
			continue
		}
		rows = append(rows, api.GroupRow{ID: op.id, State: op.state, Foreign: op.foreign})
	}
	if len(rows) == 0 {
		if err := knownGroup(s.view.catalog, group); err != nil {
			return err
		}
	}
	return w.SendJSON(http.StatusOK, map[string]any{"operations": rows, "count": len(rows)})
}

// finished is GET /api/v1/finished, the completion feed.
func (s *lists) finished(w *front.Response, r *front.Request) error {
	q := r.Query()
	after := q.Number("after", 0, 0, 1<<53)
	limit := q.Number("limit", maxListed, 1, maxFinished)
	wait := q.Wait()
	if err := q.Err(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	rows, last, err := s.history.Finished(ctx, after, int(limit))
	if beyond, ok := errors.AsType[*history.BeyondError](err); ok {
		return front.Invalid("after", "%s", beyond).With("last", beyond.Last)
	}
	if err != nil {
		return err
	}
	out := api.Finished[api.Ended]{Count: len(rows), Finished: make([]api.Ended, len(rows)), Last: last}
	for i := range rows {
		out.Finished[i] = newEnded(&rows[i])
	}
	return w.SendJSON(http.StatusOK, out)
}

// maxFinished is the maximum number of ends in one answer of the feed.
const maxFinished = 1000

// countedStates are the states that the daemon counts from memory. Foreign operations can have markers that are running
// or paused, and only a listing finds those.
var countedStates = []statefs.State{
	statefs.Scheduled, statefs.Queued, statefs.WaitingApproval, statefs.FailedRetryable,
	statefs.FailedManual, statefs.Trailing,
}

// countOnly answers a list that only wants the number of operations in countedStates; false for any other list.
func (s *lists) countOnly(q *history.Query) (total int, ok bool, err error) {
	if !q.CountsStatuses() || slices.ContainsFunc(q.Statuses,
		func(state statefs.State) bool { return !slices.Contains(countedStates, state) }) {
		return 0, false, nil
	}
	states, err := s.countStates()
	for state, n := range states {
		if slices.Contains(q.Statuses, state) {
			total += n
		}
	}
	return total, err == nil, err
}

// countStates counts the operations of this daemon by status, each exactly once at any moment.
func (s *lists) countStates() (map[statefs.State]int, error) {
	live, err := s.live.liveView(&history.Query{})
	if err != nil {
		return nil, err
	}
	live.Rows = slices.DeleteFunc(live.Rows, func(row history.Packed) bool {
		shown, err := row.Unpack()
		return err == nil && live.foreign[shown.ID] && shown.ID.PID() != machine.PID
	})
	return s.history.CountStates(live.LiveView)
}
