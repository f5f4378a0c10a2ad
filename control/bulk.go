package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

const (
	// bulkPage is the maximum number of operations per call: a call ends within seconds, also on a disk that syncs
	// slowly.
	bulkPage = 1000
	// bulkConcurrency is how many operations are processed at a time: the syncs of their requests are shared.
	bulkConcurrency = 32
	// bulkSample is how many operations a dry run names.
	bulkSample = 20
)

// bulkFilters are the list parameters that filter.
var bulkFilters = filtersOf(listParameters)

func filtersOf(list []front.Parameter) []front.Parameter {
	return slices.DeleteFunc(slices.Clone(list), func(p front.Parameter) bool {
		return slices.Contains([]string{"sort", "limit", "offset", "next"}, p.Name)
	})
}

// bulkRequest is the body of POST /api/v1/bulk.
type bulkRequest = api.BulkRequest[map[string]json.RawMessage, string]

// bulks are actions on many operations.
type bulks struct {
	tree      *statefs.Tree
	live      *liveTable
	history   *history.Store
	act       *actions
	retry     *retries
	retention *retention
	failed    func(error) // receives the errors of the disk
}

// bulk is POST /api/v1/bulk.
func (s *bulks) bulk(w *front.Response, r *front.Request) error {
	in, err := bulkFrom(r)
	if err != nil {
		return err
	}
	if in.IDs != nil {
		return s.bulkOfIDs(w, r, in)
	}
	q, err := bulkQuery(in)
	// Operations that are not loaded would be left out.
	if err = cmp.Or(err, s.live.refuseAtStartup()); err != nil {
		return err
	}
	out := api.Bulk[*string]{Action: in.Action, DryRun: in.DryRun, At: time.Now(), TotalExact: true, Failures: []api.BulkFailure{}}
	page := history.Page{Exact: true}
	if len(q.Statuses) > 0 {
		live, err := s.live.liveView(q)
		if err != nil {
			return err
		}
		if page, err = s.history.List(r.Context(), q, live.LiveView); err != nil {
			return err
		}
	}
	out.Total, out.TotalExact = page.Total, page.Exact
	ids := make([]statefs.ID, len(page.Entries))
	for i := range page.Entries {
		ids[i] = page.Entries[i].Row.ID
	}
	if in.DryRun {
		out.Operations = ids[:min(len(ids), bulkSample)]
		return w.SendJSON(http.StatusOK, out)
	}
	if page.Next != nil {
		out.Next = new(page.Next.String())
	}
	return s.carryOut(w, r, out, ids)
}

// bulkOfIDs applies the action to chosen operations. An operation to which it does not apply is a failure.
func (s *bulks) bulkOfIDs(w *front.Response, r *front.Request, in *bulkRequest) error {
	var ids []statefs.ID
	for _, text := range in.IDs {
		id, err := statefs.ParseID(text)
		if err != nil {
			return front.Invalid("ids", "%s", err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return s.carryOut(w, r, api.Bulk[*string]{Action: in.Action, At: time.Now(), Total: len(ids), TotalExact: true}, ids)
}

// carryOut applies the action to operations, and answers with what came of it.
func (s *bulks) carryOut(w *front.Response, r *front.Request, out api.Bulk[*string], ids []statefs.ID) error {
	out.Done, out.Failures = s.forEachOperation(r.Context(), ids, s.bulkAction(r, out.Action))
	if err := r.Context().Err(); err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, out)
}

// bulkKinds are the types of the members of the body that are not texts.
var bulkKinds = map[string]string{"dry_run": "true or false", "filter": "an object", "ids": "a list of IDs"}

// bulkFrom parses the body of the request.
func bulkFrom(r *front.Request) (*bulkRequest, error) {
	body, err := bodyAlone(r)
	if err != nil {
		return nil, err
	}
	in := new(bulkRequest)
	err = decodeBulk(body, in)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		name, value := wrong.Field, wrong.Value
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) == nil && members[name] != nil {
			value = front.Quote(string(members[name]))
		}
		return nil, front.Invalid(name, "%s must be %s", value, cmp.Or(bulkKinds[name], "a text"))
	}
	if err != nil {
		return nil, front.Refuse(http.StatusBadRequest,
			`The body must be a JSON object as {"action": "cancel", "filter": {"status": "queued", "job": "media/decode"}, "dry_run": true}`)
	}
	if !slices.Contains(bulkActions, in.Action) {
		return nil, front.Refuse(http.StatusBadRequest, "Invalid action '%s': must be one of %s", front.Printable(in.Action, 32),
			strings.Join(bulkActions, ", ")).With("parameter", "action")
	}
	switch {
	case in.IDs == nil:
	case in.Filter != nil || in.Next != "" || in.DryRun:
		return nil, front.Refuse(http.StatusBadRequest,
			"'ids' name the operations: 'filter', 'next' and 'dry_run' do not go with them").With("parameter", "ids")
	case len(in.IDs) == 0 || len(in.IDs) > bulkPage:
		return nil, front.Invalid("ids", "there are %d, and it takes 1 to %d", len(in.IDs), bulkPage)
	}
	return in, nil
}

// bodyAlone returns the body of a request without parameters: a client may expect dry_run to work in the URL.
func bodyAlone(r *front.Request) ([]byte, error) {
	if err := r.Query().Err(); err != nil {
		return nil, err
	}
	return r.ReadBody()
}

// decodeBulk reads a body that has no other members than in.
func decodeBulk(body []byte, in any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(in)
	if err == nil && decoder.More() {
		err = errors.New("there is more than one value")
	}
	return err
}

// filterOf returns the filter of a body as the parameters of a list, from next on.
func filterOf(filter map[string]json.RawMessage, known []front.Parameter, next string) *front.Query {
	values := url.Values{}
	var wrong error
	for name, raw := range filter {
		given := make([]string, 1)
		if json.Unmarshal(raw, &given[0]) != nil && json.Unmarshal(raw, &given) != nil {
			wrong = front.Invalid(name, "%s must be a text or a list of texts", front.Quote(string(raw)))
		} else if slices.Contains(given, "") || len(given) == 0 {
			wrong = front.Invalid(name, "it is empty")
		}
		values[name] = given
	}
	q := front.QueryOf(values, known)
	q.Refuse(wrong)
	if next != "" {
		q.Set("next", next)
	}
	return q
}

// bulkQuery returns the filter of a request as a query of the history.
func bulkQuery(in *bulkRequest) (*history.Query, error) {
	if len(in.Filter) == 0 {
		return nil, front.Refuse(http.StatusBadRequest,
			"The filter is empty: name what to %s by one of %s, or the operations in 'ids'", in.Action,
			strings.Join(front.Names(bulkFilters), ", ")).With("parameter", "filter")
	}
	q, err := queryOf(filterOf(in.Filter, bulkFilters, in.Next), time.Now())
	if err != nil {
		return nil, err
	}
	q.Limit = bulkPage
	narrowToAction(q, in.Action)
	return q, nil
}

// narrowToAction excludes the states to which an action does not apply, so that the counted operations are the affected
// ones.
func narrowToAction(q *history.Query, action string) {
	wanted := q.Statuses
	q.Statuses = nil
	for _, state := range statefs.States() {
		if len(wanted) > 0 && !slices.Contains(wanted, state) {
			continue
		}
		if ask := statefs.Action(action); ask.AppliesIn(state) || ask.Spec().OnEnded && state.Terminal() {
			q.Statuses = append(q.Statuses, state)
		}
	}
	if action == string(statefs.Retry) && len(q.Results) == 0 {
		// successful operations are not retried
		q.Results = []statefs.Result{"", statefs.Partial, statefs.Failure, statefs.CancelledResult}
	}
}

// bulkAction returns the function that applies the action to one operation.
func (s *bulks) bulkAction(r *front.Request, action string) func(context.Context, statefs.ID) error {
	return func(ctx context.Context, id statefs.ID) error {
		switch action {
		case string(statefs.Delete):
			return s.retention.refusal(id, s.retention.daemon.Delete(ctx, id))
		case string(statefs.Retry):
			if _, err := s.tree.State(id); errors.Is(err, statefs.ErrNotLive) {
				_, err := s.retry.resubmit(r, id, false, "") //nolint:contextcheck // the context of r
				return err
			}
			return s.act.requestRetry(r, id)
		}
		_, err := s.act.writeRequest(id, statefs.Action(action), nil, true, nil)
		return err
	}
}

// forEachOperation calls do for many operations, bulkConcurrency at a time, until ctx ends. The failures are in the
// order of ids.
func (s *bulks) forEachOperation(ctx context.Context, ids []statefs.ID,
	do func(context.Context, statefs.ID) error,
) (done int, failures []api.BulkFailure) {
	errs := make([]error, len(ids))
	var group sync.WaitGroup
	places := make(chan struct{}, bulkConcurrency)
	for i, id := range ids {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = do(ctx, id)
			}
		})
	}
	group.Wait()
	failures = []api.BulkFailure{}
	for i, err := range errs {
		if err == nil {
			done++
			continue
		}
		s.failed(err)
		known := refusalOf(err)
		failures = append(failures, api.BulkFailure{ID: ids[i], Status: known.Status, Error: known.Text})
	}
	return done, failures
}
