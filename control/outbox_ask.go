package control

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
)

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
	// Tried says after a wait whether it was tried since, and Error why that failed.
	Tried *bool  `json:"tried,omitempty"`
	Error string `json:"error,omitempty"`
}

// askDelivery is POST /api/v1/outbox/{entry}/{retry,drop}: of one entry, or of all of an operation.
func (s *Server) askDelivery(ask statefs.DeliveryAsk) handler {
	return func(w *answer, r *http.Request, p httprouter.Params) error {
		wait, args, err := s.askedDeliveryFrom(w, r, ask)
		if err != nil {
			return err
		}
		id, names, err := s.entriesOf(p.ByName("entry"), ask)
		if err != nil {
			return err
		}
		awaited := s.awaitEntries(names, wait)
		defer awaited.stop()
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
		tried := awaited.tried(r.Context())
		what := strconv.Itoa(len(names)) + " deliveries"
		if len(names) == 1 {
			what = "delivery " + strconv.Itoa(names[0].Place) + " (" + names[0].Kind + ")"
		}
		out.Message = strings.ToUpper(string(ask[:1])) + string(ask[1:]) + " requested for " + what + " of operation '" + id.String() + "'"
		if err := s.nowOf(&out, names, tried); err != nil {
			return err
		}
		status := http.StatusOK
		if out.Pending {
			status = http.StatusAccepted
		}
		return s.sendJSON(w, r, status, out)
	}
}

// askedDeliveryFrom reads what a request about a delivery says.
func (s *Server) askedDeliveryFrom(w *answer, r *http.Request, ask statefs.DeliveryAsk) (wait time.Duration, args statefs.Args, err error) {
	values, err := query(r)
	if err != nil {
		return 0, args, err
	}
	if ask == statefs.RetryDelivery {
		err = onlyThese(values, "wait")
	} else {
		err = onlyThese(values)
	}
	if err == nil {
		wait, err = waitFrom(values.Get("wait"))
	}
	if err == nil {
		args, err = s.argsFrom(w, r, values)
	}
	if err == nil && (args.Step != "" || args.Run != 0 || args.Values != nil) {
		err = refuse(http.StatusBadRequest, `The body may have the members reason and by, as {"reason": "the bucket is back", "by": "anna"}`)
	}
	return wait, args, err
}

// awaitedEntries are entries whose next try somebody waits for.
type awaitedEntries struct {
	done  []<-chan struct{}
	stops []func()
	until time.Time
}

// awaitEntries begins to wait for a try of each entry; without a time there is nothing to wait for.
func (s *Server) awaitEntries(names []statefs.EntryName, wait time.Duration) *awaitedEntries {
	a := &awaitedEntries{until: time.Now().Add(wait)}
	if wait == 0 {
		return a
	}
	for _, name := range names {
		done, stop := s.status.AwaitEntry(name)
		a.done, a.stops = append(a.done, done), append(a.stops, stop)
	}
	return a
}

func (a *awaitedEntries) stop() {
	for _, stop := range a.stops {
		stop()
	}
}

// tried waits, and says which of the entries were tried; nil when nobody waits.
func (a *awaitedEntries) tried(ctx context.Context) (tried []bool) {
	ctx, stop := context.WithDeadline(ctx, a.until)
	defer stop()
	for _, done := range a.done {
		select {
		case <-done:
		case <-ctx.Done():
		}
		select {
		case <-done:
			tried = append(tried, true)
		default:
			tried = append(tried, false)
		}
	}
	return tried
}

// nowOf says how each entry stands now, and after a wait what its try came to.
func (s *Server) nowOf(out *askedDelivery, names []statefs.EntryName, tried []bool) error {
	rec, err := s.tree.ReadRecord(out.ID)
	if err != nil {
		return err
	}
	for i, name := range names {
		it := rec.Delivery(name.Place)
		if it == nil {
			continue
		}
		now := deliveryNow{Entry: name.String(), Status: it.State}
		if tried != nil {
			now.Tried, now.Error = &tried[i], it.Error
			out.Pending = out.Pending || !tried[i]
		}
		if tried != nil && tried[i] && it.State == statefs.DeliveryPending {
			entry, _, err := s.tree.ReadEntry(name)
			if err == nil {
				now.Error = entry.LastError
			} else if !errors.Is(err, fs.ErrNotExist) { // it has just been delivered
				now.Error = err.Error()
			}
		}
		out.Entries = append(out.Entries, now)
	}
	return nil
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
