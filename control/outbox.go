package control

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// outboxParameters are those of GET /api/v1/outbox.
var outboxParameters = []parameter{
	{name: "status", kind: "string", summary: "only those with this status: pending, failed_manual; several are separated by commas"},
	{name: "kind", kind: "string", summary: "only those for targets of this kind: folder, webhook, s3; several are separated by commas"},
	{name: "target", kind: "string", summary: "only those whose target has this text in what it is called, as the member at has it"},
	{name: "job", kind: "string", summary: "only those of this job, as JOB or GROUP/JOB"},
	{name: "endpoint", kind: "string", summary: "only those of this endpoint name, {group}-{job}"},
	{name: "id", kind: "string", summary: "only those of this operation"},
	{name: "older_than", kind: "string", summary: "only those that have waited longer than this (90s, 1h, 2d)"},
	{name: "limit", kind: "integer", summary: "how many, 0 to 200; 0 is the counts alone; 50 when not given"},
	{name: "next", kind: "string", summary: "where the page before ended: its member next"},
}

// outboxJSON is the answer.
type outboxJSON struct {
	Entries []statefs.OutboxItem `json:"entries"`
	Count   int                  `json:"count"`
	Total   int                  `json:"total"`
	Exact   bool                 `json:"total_exact"`
	Next    *string              `json:"next"`
	statefs.OutboxStatus
	// OldestSeconds is the age of the oldest pending entry of all, 0 when there is none.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// outbox is GET /api/v1/outbox. The daemon chooses from memory; what the page shows of each is read from the disk.
func (s *Server) outbox(w *answer, r *http.Request, _ httprouter.Params) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	q, err := s.outboxQuery(values, time.Now())
	if err == nil {
		err = s.knowsAll()
	}
	if err != nil {
		return err
	}
	lines, total := s.status.OutboxLines(q)
	out := outboxJSON{Entries: []statefs.OutboxItem{}, Total: total, Exact: true, OutboxStatus: s.status.Outbox()}
	if at := out.OldestAt; at != nil {
		out.OldestSeconds = int64(max(time.Since(*at), 0) / time.Second)
	}
	for i := range lines {
		item, err := s.tree.ShowEntry(lines[i].Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was delivered or removed meanwhile
		}
		if err != nil {
			return err
		}
		item.At, item.NextTryAt, item.TargetDown = lines[i].TargetName, lines[i].NextTryAt, lines[i].Target != nil && lines[i].Target.Down
		out.Entries = append(out.Entries, item)
	}
	if n := len(lines); n > 0 && n == q.Limit {
		next := strconv.FormatInt(lines[n-1].CreatedAt.UnixNano(), 10) + "." + lines[n-1].Name.String()
		out.Next = &next
	}
	out.Count = len(out.Entries)
	w.Header().Set("X-Total-Count", strconv.Itoa(total))
	w.Header().Set("X-Total-Count-Exact", "true")
	return s.sendJSON(w, r, http.StatusOK, out)
}

// outboxQuery reads the parameters of the list.
func (s *Server) outboxQuery(values url.Values, now time.Time) (*statefs.OutboxQuery, error) {
	var names []string
	for _, p := range outboxParameters {
		names = append(names, p.name)
	}
	for _, name := range []string{"status", "kind"} { // these alone may be given several times
		if given := values[name]; len(given) > 1 {
			values[name] = []string{strings.Join(given, ",")}
		}
	}
	err := onlyThese(values, names...)
	if err != nil {
		return nil, err
	}
	q := &statefs.OutboxQuery{Target: values.Get("target")}
	if q.Statuses, err = choices(values, "status", []statefs.DeliveryStatus{statefs.DeliveryPending, statefs.DeliveryManual}); err != nil {
		return nil, err
	}
	if q.Kinds, err = choices(values, "kind", catalog.DeliveryKinds()); err != nil {
		return nil, err
	}
	if q.Of, err = s.outboxOf(values); err != nil {
		return nil, err
	}
	if text := values.Get("older_than"); text != "" {
		age, ok := catalog.ParseDuration(text)
		if !ok || age < 0 {
			return nil, refuse(http.StatusBadRequest, "Invalid parameter 'older_than': %s must be a time such as 90s, 1h or 2d", shownValue(text)).with("parameter", "older_than")
		}
		q.Before = now.Add(-age)
	}
	limit, err := numberFrom(values, "limit", listed, 0, mostListed)
	if err != nil {
		return nil, err
	}
	q.Limit = int(limit)
	if text := values.Get("next"); text != "" {
		nanos, entry, _ := strings.Cut(text, ".")
		at, err := strconv.ParseInt(nanos, 10, 64)
		name, ok := statefs.ParseEntry(entry)
		if err != nil || !ok {
			return nil, refuse(http.StatusBadRequest, "Invalid parameter 'next': %s is not the member next of a page of this list", shownValue(text)).with("parameter", "next")
		}
		q.AfterAt, q.AfterName = time.Unix(0, at), name
	}
	return q, nil
}

// outboxOf returns what chooses by the ID; nil when that chooses nothing. An ID has the endpoint name, from which group and job cannot always be told, so
// the jobs that are defined say it, and for those that no longer are the end of the name does.
func (s *Server) outboxOf(values url.Values) (func(statefs.ID) bool, error) {
	var all []func(statefs.ID) bool
	if text := values.Get("id"); text != "" {
		id, err := statefs.ParseID(text)
		if err != nil {
			return nil, err
		}
		all = append(all, func(other statefs.ID) bool { return other == id })
	}
	if endpoint := values.Get("endpoint"); endpoint != "" {
		all = append(all, func(id statefs.ID) bool { return id.Endpoint() == endpoint })
	}
	if job := values.Get("job"); job != "" {
		group, name, both := strings.Cut(job, "/")
		if both {
			endpoint := group + "-" + name
			all = append(all, func(id statefs.ID) bool { return id.Endpoint() == endpoint })
		} else {
			named := make(map[string]bool)
			for _, def := range s.catalog.All() {
				named[def.Endpoint()] = def.Name == job
			}
			all = append(all, func(id statefs.ID) bool {
				is, defined := named[id.Endpoint()]
				return is || !defined && strings.HasSuffix(id.Endpoint(), "-"+job)
			})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return func(id statefs.ID) bool {
		for _, is := range all {
			if !is(id) {
				return false
			}
		}
		return true
	}, nil
}

// askedDelivery is the answer to a retry or drop.
type askedDelivery struct {
	Success bool                `json:"success"`
	ID      statefs.ID          `json:"id"`
	Action  statefs.DeliveryAsk `json:"action"`
	Message string              `json:"message"`
	// Entries are what was asked for, and how each stands now.
	Entries []deliveryNow `json:"entries"`
	// Pending says that the request stands and is not carried out yet.
	Pending bool `json:"pending,omitempty"`
}

type deliveryNow struct {
	Entry  string                 `json:"entry"`
	Status statefs.DeliveryStatus `json:"status"`
}

// askDelivery is POST /api/v1/outbox/{entry}/{retry,drop}: of one entry, or of all of an operation.
func (s *Server) askDelivery(ask statefs.DeliveryAsk) handler {
	return func(w *answer, r *http.Request, p httprouter.Params) error {
		values, err := query(r)
		if err != nil {
			return err
		}
		if err := onlyThese(values); err != nil {
			return err
		}
		args, err := s.argsFrom(w, r, values)
		if err != nil {
			return err
		}
		if args.Step != "" || args.Run != 0 || args.Values != nil {
			return refuse(http.StatusBadRequest, `The body may have the members reason and by, as {"reason": "the bucket is back", "by": "anna"}`)
		}
		id, names, err := s.entriesOf(p.ByName("entry"), ask)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := s.tree.AskDelivery(name, ask, args); err != nil {
				return err
			}
		}
		out := askedDelivery{Success: true, ID: id, Action: ask}
		ctx, stop := context.WithTimeout(r.Context(), carryOutTime)
		defer stop()
		for _, name := range names { // whatever becomes of it, the requests are on the disk
			out.Pending = s.status.LookAtEntry(ctx, name) != nil || out.Pending
		}
		what := strconv.Itoa(len(names)) + " deliveries"
		if len(names) == 1 {
			what = "delivery " + strconv.Itoa(names[0].Place) + " (" + names[0].Kind + ")"
		}
		out.Message = strings.ToUpper(string(ask[:1])) + string(ask[1:]) + " requested for " + what + " of operation '" + id.String() + "'"
		rec, err := s.tree.ReadRecord(id)
		if err != nil {
			return err
		}
		for _, name := range names {
			if it := rec.Delivery(name.Place); it != nil {
				out.Entries = append(out.Entries, deliveryNow{name.String(), it.State})
			}
		}
		status := http.StatusOK
		if out.Pending {
			status = http.StatusAccepted
		}
		return s.sendJSON(w, r, status, out)
	}
}

// entriesOf finds what is asked for: an entry, ID.N-KIND, or all of an operation that are not done with.
func (s *Server) entriesOf(text string, ask statefs.DeliveryAsk) (id statefs.ID, names []statefs.EntryName, err error) {
	name, single := statefs.ParseEntry(text)
	id = name.ID
	if !single {
		if id, err = statefs.ParseID(text); err != nil {
			return id, nil, err
		}
	}
	rec, err := s.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil, s.goneOrNever(id)
	}
	if err != nil {
		return id, nil, err
	}
	if !rec.Status.Terminal() {
		return id, nil, refuse(http.StatusConflict, "Operation '%s' has not ended: nothing of it is delivered yet", id).with("id", id)
	}
	var why error
	for i := range rec.Deliveries {
		it := &rec.Deliveries[i]
		of := statefs.EntryName{ID: id, Place: it.Place, Kind: it.Kind}
		if single && of != name {
			continue
		}
		if why = s.mayAskDelivery(it, of, ask); why == nil {
			names = append(names, of)
		} else if _, refused := errors.AsType[*refusal](why); !refused {
			return id, nil, why
		}
	}
	switch {
	case len(names) > 0:
		return id, names, nil
	case single && why == nil:
		return id, nil, refuse(http.StatusNotFound, "Operation '%s' has no delivery '%s'", id, printable(text, 200)).with("id", id)
	case single || len(rec.Deliveries) == 1:
		return id, nil, why
	}
	return id, nil, refuse(http.StatusConflict, "Operation '%s' has nothing that waits to be delivered", id).with("id", id)
}

// mayAskDelivery says why something cannot be asked of a delivery.
func (s *Server) mayAskDelivery(it *statefs.Delivery, name statefs.EntryName, ask statefs.DeliveryAsk) error {
	if it.State != statefs.DeliveryPending && it.State != statefs.DeliveryManual {
		return refuse(http.StatusConflict, "Delivery %d (%s) of operation '%s' is %s: nothing to do", it.Place, it.Kind, name.ID, it.State).with("id", name.ID).with("status", it.State)
	}
	if ask == statefs.DropDelivery {
		return nil
	}
	has, _, err := s.tree.HasEntry(name)
	if err != nil || has {
		return err
	}
	return refuse(http.StatusConflict, "Delivery %d (%s) of operation '%s' cannot be tried again: %s; drop it, or submit another operation", it.Place, it.Kind, name.ID, printable(it.Error, 500)).
		with("id", name.ID).with("status", it.State)
}

func (s *Server) outboxRoutes() []route {
	const body = `{"reason": "why", "by": "anna"}, all of which may be left out`
	answers := []response{
		{200, mediaJSON, "It is carried out; each entry with its status now"},
		{202, mediaJSON, "The request is on disk"},
		{409, problemType, "There is nothing to do, or nothing that a retry could change"},
	}
	return []route{
		{
			method: "GET", path: "/api/v1/outbox", handle: s.outbox, summary: "What is to be delivered and is not yet, and how the targets are", query: outboxParameters,
			answers: []response{{200, mediaJSON, "The entries, the oldest first; X-Total-Count has the number of all that match; oldest_seconds is the age of the oldest pending one of all"}, stillStarting},
		},
		{
			method: "POST", path: "/api/v1/outbox/:entry/retry", handle: s.askDelivery(statefs.RetryDelivery), body: body, answers: answers,
			summary: "Try a delivery now, also one that waits for a person or whose target is down: an entry, as ID.1-webhook, or all of an operation",
		},
		{
			method: "POST", path: "/api/v1/outbox/:entry/drop", handle: s.askDelivery(statefs.DropDelivery), body: body, answers: answers,
			summary: "Give a delivery up: an entry, as ID.1-webhook, or all of an operation",
		},
	}
}
