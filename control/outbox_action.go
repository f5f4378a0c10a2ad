package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/notify"
)

// requestTimeout is how long an answer waits for the daemon to carry out a request. Normally that takes milliseconds.
const requestTimeout = 5 * time.Second

// requestDeliveryAction is POST /api/v1/outbox/{entry}/{retry,drop}: of one entry, or of all of an operation.
func (s *outboxControl) requestDeliveryAction(ask statefs.DeliveryAction) front.Handler {
	return func(w *front.Response, r *front.Request) error {
		q := r.Query()
		wait, args := q.Wait(), argsFrom(r, q)
		if args.Step != "" || args.Run != 0 || args.Values != nil {
			q.Refuse(front.Refuse(http.StatusBadRequest,
				`The body may have the members reason and by, as {"reason": "the bucket is back", "by": "anna"}`))
		}
		if err := q.Err(); err != nil {
			return err
		}
		id, names, err := s.entriesOf(r.Param("entry"), ask)
		if err != nil {
			return err
		}
		waiting, stopWaiting := context.WithTimeout(r.Context(), wait)
		defer stopWaiting()
		var attempts []<-chan struct{}
		for _, name := range names {
			if wait > 0 {
				done, stop := s.daemon.Await(name)
				defer stop()
				attempts = append(attempts, done)
			}
			if err := s.tree.Outbox.Request(name, ask, args); err != nil {
				return err
			}
		}
		out := api.DeliveryAnswer{Success: true, ID: id, Action: ask}
		ctx, stop := context.WithTimeout(r.Context(), requestTimeout)
		defer stop()
		for _, name := range names { // a failure leaves the request pending: it is on disk
			out.Pending = s.daemon.Reconcile(ctx, name) != nil || out.Pending
		}
		tried := attempted(waiting, attempts)
		what := strconv.Itoa(len(names)) + " deliveries"
		if len(names) == 1 {
			what = "delivery " + strconv.Itoa(names[0].Place) + " (" + names[0].Kind + ")"
		}
		out.Message = strings.ToUpper(string(ask[:1])) + string(ask[1:]) + " requested for " + what +
			" of operation '" + id.String() + "'"
		if err := s.describeEntries(&out, names, tried); err != nil {
			return err
		}
		status := http.StatusOK
		if out.Pending {
			status = http.StatusAccepted
		}
		return w.SendJSON(status, out)
	}
}

// attempted waits until each attempt has ended, at most until ctx ends, and returns which have; nil for none.
func attempted(ctx context.Context, attempts []<-chan struct{}) (tried []bool) {
	for _, done := range attempts {
		select {
		case <-done:
		case <-ctx.Done():
		}
		tried = append(tried, notify.IsClosed(done))
	}
	return tried
}

// describeEntries adds the current status of each entry, and after a wait the result of its attempt.
func (s *outboxControl) describeEntries(out *api.DeliveryAnswer, names []statefs.EntryName, tried []bool) error {
	rec, err := s.tree.ReadRecord(out.ID)
	if err != nil {
		return err
	}
	for i, name := range names {
		it := rec.Delivery(name.Place)
		if it == nil {
			continue
		}
		now := api.DeliveryAnswerEntry{Entry: name.String(), Status: it.State}
		if tried != nil {
			now.Tried, now.Error = &tried[i], it.Error
			out.Pending = out.Pending || !tried[i]
		}
		if tried != nil && tried[i] && it.State == statefs.DeliveryPending {
			entry, _, err := s.tree.Outbox.Read(name)
			if err == nil {
				now.Error = entry.LastError
			} else if !errors.Is(err, fs.ErrNotExist) { // without the entry it has just been delivered
				now.Error = err.Error()
			}
		}
		out.Entries = append(out.Entries, now)
	}
	return nil
}

// entriesOf resolves the entry in a path: one entry, ID.N-KIND, or all unfinished entries of an operation.
func (s *outboxControl) entriesOf(text string, ask statefs.DeliveryAction) (id statefs.ID,
	names []statefs.EntryName, err error,
) {
	name, single := statefs.ParseEntry(text)
	id = name.ID
	if !single {
		if id, err = statefs.ParseID(text); err != nil {
			return id, nil, err
		}
	}
	rec, err := statefs.ReadSubmitted(s.tree, id)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil, s.view.goneError(id)
	}
	if err != nil {
		return id, nil, err
	}
	if !rec.Status.Terminal() {
		return id, nil, front.Refuse(http.StatusConflict,
			"Operation '%s' has not ended: nothing of it is delivered yet", id).With("id", id)
	}
	var why error
	for i := range rec.Deliveries {
		it := &rec.Deliveries[i]
		of := statefs.EntryName{ID: id, Place: it.Place, Kind: it.Kind}
		if single && of != name {
			continue
		}
		if why = s.checkDeliveryAction(it, of, ask); why == nil {
			names = append(names, of)
		} else if _, refused := errors.AsType[*front.RefusalError](why); !refused {
			return id, nil, why
		}
	}
	switch {
	case len(names) > 0:
		return id, names, nil
	case single && why == nil:
		return id, nil, front.Refuse(http.StatusNotFound, "Operation '%s' has no delivery '%s'", id,
			front.Printable(text, 200)).With("id", id)
	case single || len(rec.Deliveries) == 1:
		return id, nil, why
	}
	return id, nil, front.Refuse(http.StatusConflict, "Operation '%s' has nothing that waits to be delivered", id).With("id", id)
}

// checkDeliveryAction refuses an action that does not apply to a delivery.
func (s *outboxControl) checkDeliveryAction(it *statefs.Delivery, name statefs.EntryName, ask statefs.DeliveryAction) error {
	if it.State != statefs.DeliveryPending && it.State != statefs.DeliveryManual {
		return front.Refuse(http.StatusConflict, "Delivery %d (%s) of operation '%s' is %s: nothing to do", it.Place, it.Kind,
			name.ID, it.State).With("id", name.ID).With("status", it.State)
	}
	if ask == statefs.DropDelivery {
		return nil
	}
	has, _, err := s.tree.Outbox.Has(name)
	if err != nil || has {
		return err
	}
	return front.Refuse(http.StatusConflict,
		"Delivery %d (%s) of operation '%s' cannot be tried again: %s; drop it, or submit another operation", it.Place,
		it.Kind, name.ID, front.Printable(it.Error, 500)).
		With("id", name.ID).With("status", it.State)
}

// outboxFilters are the list parameters of the outbox that filter.
var outboxFilters = filtersOf(outboxParameters)

// outboxBulkRequest is the body of POST /api/v1/outbox.
type outboxBulkRequest = api.BulkDeliveriesRequest[map[string]json.RawMessage]

// outboxBulk is POST /api/v1/outbox.
func (s *outboxControl) outboxBulk(w *front.Response, r *front.Request) error {
	in, q, args, err := s.outboxBulkFrom(r)
	if err = cmp.Or(err, s.live.refuseAtStartup()); err != nil {
		return err
	}
	lines, total := s.daemon.Lines(q)
	out := api.BulkDeliveries{Action: in.Action, DryRun: in.DryRun, Total: total, Failures: []api.DeliveryFailure{}}
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
	failed, err := s.daemon.Request(r.Context(), names, in.Action, args)
	if err = cmp.Or(err, r.Context().Err()); err != nil {
		return err
	}
	for _, name := range names {
		if err := failed[name]; err != nil {
			s.failed(err)
			out.Failures = append(out.Failures, api.DeliveryFailure{Entry: name.String(), Error: err.Error()})
		}
	}
	out.Done = len(names) - len(out.Failures)
	out.Next = nextLine(lines, q)
	return w.SendJSON(http.StatusOK, out)
}

// nextLine returns the position after a page of the list, nil when that is the last one.
func nextLine(page []statefs.OutboxLine, q *statefs.OutboxQuery) *string {
	n := len(page)
	if n == 0 || n < q.Limit {
		return nil
	}
	return new(strconv.FormatInt(page[n-1].CreatedAt.UnixNano(), 10) + "." + page[n-1].Name.String())
}

// outboxBulkFrom parses the request and its filter.
func (s *outboxControl) outboxBulkFrom(r *front.Request) (*outboxBulkRequest, *statefs.OutboxQuery,
	statefs.Args, error,
) {
	var args statefs.Args
	body, err := bodyAlone(r)
	if err != nil {
		return nil, nil, args, err
	}
	in := new(outboxBulkRequest)
	if err := decodeBulk(body, in); err != nil {
		return nil, nil, args, front.Refuse(http.StatusBadRequest,
			`The body must be a JSON object as {"action": "retry", "filter": {"status": "failed_manual", "target": "videos"}, "dry_run": true, "reason": "the bucket is back"}`)
	}
	if !slices.Contains(statefs.DeliveryActions(), in.Action) {
		return nil, nil, args, front.Refuse(http.StatusBadRequest, "Invalid action '%s': must be retry or drop",
			front.Printable(string(in.Action), 32)).With("parameter", "action")
	}
	if len(in.Filter) == 0 && in.Action == statefs.DropDelivery {
		return nil, nil, args, front.Refuse(http.StatusBadRequest, "The filter is empty: name what to drop by one of %s",
			strings.Join(front.Names(outboxFilters), ", ")).With("parameter", "filter")
	}
	q, err := s.outboxQuery(filterOf(in.Filter, outboxFilters, in.Next), time.Now())
	if err != nil {
		return nil, nil, args, err
	}
	q.Limit = bulkPage
	by, err := r.Creator()
	if err != nil {
		return nil, nil, args, err
	}
	args.Reason, args.By = in.Reason, cmp.Or(by, in.By)
	_, err = args.JSON()
	return in, q, args, err
}
