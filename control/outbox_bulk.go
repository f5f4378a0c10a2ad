package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
)

// outboxFilters are the list parameters of the outbox that filter.
var outboxFilters = func() (names []string) {
	for _, p := range outboxParameters {
		if p.Name != "limit" && p.Name != "next" {
			names = append(names, p.Name)
		}
	}
	return names
}()

// outboxBulkRequest is the body of POST /api/v1/outbox.
type outboxBulkRequest struct {
	Action statefs.DeliveryAction `json:"action"`
	Filter map[string]oneOrMore   `json:"filter"`
	DryRun bool                   `json:"dry_run"`
	Next   string                 `json:"next"`
	Reason string                 `json:"reason"`
	By     string                 `json:"by"`
}

// outboxBulkJSON is the answer of POST /api/v1/outbox.
type outboxBulkJSON struct {
	Action statefs.DeliveryAction `json:"action"`
	DryRun bool                   `json:"dry_run"`
	// Total is how many entries match. Entries that earlier calls changed count only if they still match.
	Total int `json:"total"`
	// Entries is a sample of the matching entries, in a dry run.
	Entries  []string          `json:"entries,omitempty"`
	Done     int               `json:"done"`
	Failures []outboxBulkFault `json:"failures"`
	// Next continues after the entries of this call; null when there are no more.
	Next *string `json:"next"`
}

// outboxBulkFault is an unchanged entry, and why.
type outboxBulkFault struct {
	Entry string `json:"entry"`
	Error string `json:"error"`
}

// outboxBulk is POST /api/v1/outbox.
func (s *outboxControl) outboxBulk(w *front.Response, r *front.Request) error {
	in, q, args, err := s.outboxBulkFrom(r)
	if err == nil {
		err = s.live.refuseAtStartup()
	}
	if err != nil {
		return err
	}
	lines, total := s.daemon.OutboxLines(q)
	out := outboxBulkJSON{Action: in.Action, DryRun: in.DryRun, Total: total, Failures: []outboxBulkFault{}}
	names := make([]statefs.EntryName, len(lines))
	for i := range lines {
		names[i] = lines[i].Name
	}
	if in.DryRun {
		for _, name := range names[:min(len(names), bulkSample)] {
			out.Entries = append(out.Entries, name.String())
		}
		return w.SendJSON(http.StatusOK, out)
	}
	failed, err := s.daemon.RequestDeliveries(r.Context(), names, in.Action, args)
	if err == nil {
		err = r.Context().Err()
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := failed[name]; err != nil {
			s.failed(err)
			out.Failures = append(out.Failures, outboxBulkFault{name.String(), err.Error()})
		}
	}
	out.Done = len(names) - len(out.Failures)
	if n := len(lines); n > 0 && n == q.Limit {
		next := outboxCursor(&lines[n-1])
		out.Next = &next
	}
	return w.SendJSON(http.StatusOK, out)
}

// outboxCursor returns the position after an entry of the list.
func outboxCursor(l *statefs.OutboxLine) string {
	return strconv.FormatInt(l.CreatedAt.UnixNano(), 10) + "." + l.Name.String()
}

// outboxBulkFrom parses the request and its filter.
func (s *outboxControl) outboxBulkFrom(r *front.Request) (*outboxBulkRequest, *statefs.OutboxQuery,
	statefs.Args, error,
) {
	var args statefs.Args
	body, err := r.ReadBody()
	if err != nil {
		return nil, nil, args, err
	}
	in := new(outboxBulkRequest)
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(in); err != nil || decoder.More() {
		return nil, nil, args, front.Refuse(http.StatusBadRequest,
			`The body must be a JSON object as {"action": "retry", "filter": {"status": "failed_manual", "target": "videos"}, "dry_run": true, "reason": "the bucket is back"}`)
	}
	if !slices.Contains(statefs.DeliveryActions(), in.Action) {
		return nil, nil, args, front.Refuse(http.StatusBadRequest, "Invalid action '%s': must be retry or drop",
			front.Printable(string(in.Action), 32)).With("parameter", "action")
	}
	values := url.Values{}
	for name, given := range in.Filter {
		if !slices.Contains(outboxFilters, name) {
			return nil, nil, args, front.UnknownParameter(name, outboxFilters)
		}
		if slices.Contains(given, "") || len(given) == 0 {
			return nil, nil, args, front.Refuse(http.StatusBadRequest, "Invalid parameter '%s': it is empty",
				name).With("parameter", name)
		}
		values[name] = given
	}
	if len(values) == 0 && in.Action == statefs.DropDelivery {
		return nil, nil, args, front.Refuse(http.StatusBadRequest, "The filter is empty: name what to drop by one of %s",
			strings.Join(outboxFilters, ", ")).With("parameter", "filter")
	}
	if in.Next != "" {
		values.Set("next", in.Next)
	}
	q, err := s.outboxQuery(values, time.Now())
	if err != nil {
		return nil, nil, args, err
	}
	q.Limit = bulkPage
	if _, err := r.Creator(); err != nil {
		return nil, nil, args, err
	}
	if args.Reason, args.By = in.Reason, requester(r); args.By == "" {
		args.By = in.By
	}
	_, err = args.JSON()
	if wrong, ok := errors.AsType[*statefs.ArgsError](err); ok {
		return nil, nil, args, wrong
	}
	return in, q, args, err
}
