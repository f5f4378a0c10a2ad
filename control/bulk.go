package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
)

const (
	// bulkPage is how many operations one call acts on: few enough that a call ends in seconds on a disk that is slow to sync.
	bulkPage = 1000
	// bulkAtOnce is how many of them at the same time: the syncs of their requests are made together.
	bulkAtOnce = 32
	// bulkSample is how many a dry run names.
	bulkSample = 20
)

// bulkDelete is the one action that is no request.
const bulkDelete = "delete"

// bulkActions are what can be done to all that match a filter.
var bulkActions = append(slices.Clone(actions), bulkDelete)

// bulkFilters are the parameters of a list that narrow it down.
var bulkFilters = func() (names []string) {
	for _, p := range listParameters {
		if !slices.Contains([]string{"sort", "limit", "offset", "next"}, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}()

// bulkRequest is the body of POST /api/v1/bulk.
type bulkRequest struct {
	Action string                     `json:"action"`
	Filter map[string]json.RawMessage `json:"filter"`
	DryRun bool                       `json:"dry_run"`
	Next   string                     `json:"next"`
}

// oneOrMore is a text or a list of texts.
type oneOrMore []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *oneOrMore) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(o))
}

// bulkJSON is the answer.
type bulkJSON struct {
	Action string `json:"action"`
	DryRun bool   `json:"dry_run"`
	// Total is how many match, this call's and all that come behind it; a lower bound when TotalExact is false.
	Total      int  `json:"total"`
	TotalExact bool `json:"total_exact"`
	// At is when they were looked for: handed back as the filter's until, it keeps out what is submitted later.
	At time.Time `json:"at"`
	// Operations are some of those that match, of a dry run.
	Operations []statefs.ID  `json:"operations,omitempty"`
	Done       int           `json:"done"`
	Failures   []bulkFailure `json:"failures"`
	// Next continues behind those that this call has dealt with; null when there are no more.
	Next *string `json:"next"`
}

// bulkFailure is an operation that was left as it is, and why.
type bulkFailure struct {
	ID     statefs.ID `json:"id"`
	Status int        `json:"status"`
	Error  string     `json:"error"`
}

// bulk is POST /api/v1/bulk.
func (s *Server) bulk(w *answer, r *http.Request, _ httprouter.Params) error {
	in, q, err := s.bulkFrom(w, r)
	if err == nil {
		err = s.knowsAll() // what is not counted would be left out
	}
	if err != nil {
		return err
	}
	out := bulkJSON{Action: in.Action, DryRun: in.DryRun, At: time.Now(), TotalExact: true, Failures: []bulkFailure{}}
	page := history.Page{Exact: true}
	if len(q.Statuses) > 0 {
		live, _, err := s.lives(q)
		if err != nil {
			return err
		}
		if page, err = s.history.ListOf(r.Context(), q, live); err != nil {
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
		return s.sendJSON(w, r, http.StatusOK, out)
	}
	if page.Next != nil {
		next := page.Next.String()
		out.Next = &next
	}
	out.Done, out.Failures = s.forAll(r.Context(), ids, s.bulkAction(r, in.Action))
	if err := r.Context().Err(); err != nil {
		return err
	}
	return s.sendJSON(w, r, http.StatusOK, out)
}

// bulkFrom reads what is to be done, and to which.
func (s *Server) bulkFrom(w *answer, r *http.Request) (*bulkRequest, *history.Query, error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, nil, err
	}
	in := new(bulkRequest)
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(in)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		name := wrong.Field
		var members map[string]json.RawMessage
		value := wrong.Value
		if json.Unmarshal(body, &members) == nil && members[name] != nil {
			value = shownValue(string(members[name]))
		}
		return nil, nil, refuse(http.StatusBadRequest, "Invalid parameter '%s': %s must be %s", printable(name, 64), value, bulkKind(name)).with("parameter", name)
	}
	if err != nil || decoder.More() {
		return nil, nil, refuse(http.StatusBadRequest, `The body must be a JSON object as {"action": "cancel", "filter": {"status": "queued", "job": "media/decode"}, "dry_run": true}`)
	}
	if !slices.Contains(bulkActions, in.Action) {
		return nil, nil, refuse(http.StatusBadRequest, "Invalid action '%s': must be one of %s", printable(in.Action, 32), strings.Join(bulkActions, ", ")).with("parameter", "action")
	}
	values := url.Values{}
	for name, raw := range in.Filter {
		if !slices.Contains(bulkFilters, name) {
			return nil, nil, unknownParameter(name, bulkFilters)
		}
		var given oneOrMore
		if json.Unmarshal(raw, &given) != nil {
			return nil, nil, refuse(http.StatusBadRequest, "Invalid parameter '%s': %s must be a text or a list of texts", name, shownValue(string(raw))).with("parameter", name)
		}
		if slices.Contains(given, "") || len(given) == 0 {
			return nil, nil, refuse(http.StatusBadRequest, "Invalid parameter '%s': it is empty", name).with("parameter", name)
		}
		values[name] = given
	}
	if len(values) == 0 {
		return nil, nil, refuse(http.StatusBadRequest, "The filter is empty: name what to %s by one of %s", in.Action, strings.Join(bulkFilters, ", ")).with("parameter", "filter")
	}
	if in.Next != "" {
		values.Set("next", in.Next)
	}
	q, err := queryOf(values, time.Now())
	if err != nil {
		return nil, nil, err
	}
	q.Limit = bulkPage
	narrow(q, in.Action)
	return in, q, nil
}

// narrow leaves out the operations for which an action means nothing, so that what is counted is what is done.
func narrow(q *history.Query, action string) {
	wanted := q.Statuses
	q.Statuses = nil
	for _, state := range statefs.States() {
		if len(wanted) > 0 && !slices.Contains(wanted, state) {
			continue
		}
		switch {
		case action == bulkDelete && state.Terminal(),
			action != bulkDelete && state.Live() && statefs.Ask(action).Means(state),
			action == string(statefs.Retry) && state.Terminal():
			q.Statuses = append(q.Statuses, state)
		}
	}
	if action == string(statefs.Retry) && len(q.Results) == 0 {
		q.Results = []statefs.Result{"", statefs.Partial, statefs.Failure, statefs.CancelledResult} // one that ended well is not done again
	}
}

// bulkAction returns what is done to one operation.
func (s *Server) bulkAction(r *http.Request, action string) func(context.Context, statefs.ID) error {
	return func(ctx context.Context, id statefs.ID) error {
		switch action {
		case bulkDelete:
			if err := s.status.Delete(ctx, id); err != nil {
				return s.keptOrGone(id, err)
			}
			return nil
		case string(statefs.Retry):
			if _, err := s.tree.State(id); errors.Is(err, statefs.ErrNotLive) {
				_, err := s.again(r, id, false, "")
				return err
			}
			return s.retryOf(ctx, r, id)
		}
		return s.request(ctx, id, action)
	}
}

// forAll does something to each of many operations, some at a time, until ctx ends. The failures are in the order of the operations.
func (s *Server) forAll(ctx context.Context, ids []statefs.ID, do func(context.Context, statefs.ID) error) (done int, failures []bulkFailure) {
	errs := make([]error, len(ids))
	var group sync.WaitGroup
	places := make(chan struct{}, bulkAtOnce)
	for i, id := range ids {
		places <- struct{}{}
		if ctx.Err() != nil {
			errs[i] = ctx.Err()
			<-places
			continue
		}
		group.Go(func() {
			defer func() { <-places }()
			errs[i] = do(ctx, id)
		})
	}
	group.Wait()
	failures = []bulkFailure{}
	for i, err := range errs {
		if err == nil {
			done++
			continue
		}
		s.tellDaemon(err)
		known := refusalOf(err)
		failures = append(failures, bulkFailure{ids[i], known.status, known.text})
	}
	return done, failures
}

// bulkKind is what a member of the body must be.
func bulkKind(name string) string {
	switch name {
	case "dry_run":
		return "true or false"
	case "filter":
		return "an object"
	}
	return "a text"
}
