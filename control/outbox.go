package control

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// outboxParameters are the parameters of GET /api/v1/outbox.
var outboxParameters = []front.Parameter{
	list("status", "only those with this status: pending, failed_manual; several are separated by commas"),
	list("kind",
		"only those for targets of this kind: "+strings.Join(catalog.DeliveryKinds(), ", ")+
			"; several are separated by commas"),
	text("target", "only those whose target has this text in what it is called, as the member at has it"),
	text("job", "only those of this job, as JOB or GROUP/JOB"),
	text("endpoint", "only those of this endpoint name, {group}-{job}"),
	text("id", "only those of this operation"),
	text("older_than", "only deliveries that have waited longer than this (90s, 1h, 2d)"),
	number("limit", "how many, 0 to 200; 0 is the counts alone; 50 when not given"),
	text("next", "where the page before ended: its member next"),
}

// outboxStatus is what the daemon knows of deliveries.
type outboxStatus interface {
	// Status returns a summary of the outbox; it visits every entry in memory. Lines returns the entries that match a
	// query, the oldest first, and their total number. Reconcile returns after the daemon has reconciled an entry and
	// carried out the requests about it.
	Status() statefs.OutboxStatus
	Lines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int)
	Reconcile(ctx context.Context, name statefs.EntryName) error
	// Await returns a channel that is closed when a delivery attempt that starts after this call ends, and when
	// the entry is finished. The caller must call stop.
	Await(name statefs.EntryName) (done <-chan struct{}, stop func())
	// Request retries or drops many entries. It returns when that is durable, with an error for each
	// unchanged entry. Of the retried entries, one per target is attempted at once.
	Request(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
		args statefs.Args) (map[statefs.EntryName]error, error)
}

// outboxControl shows deliveries, and retries or drops them.
type outboxControl struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	view    *viewer
	live    *liveTable
	daemon  outboxStatus
	failed  func(error) // receives the errors of the disk
}

// outbox is GET /api/v1/outbox. The daemon filters in memory; the entries of the page are read from disk.
func (s *outboxControl) outbox(w *front.Response, r *front.Request) error {
	q, err := s.outboxQuery(r.Query(), time.Now())
	if err = cmp.Or(err, s.live.refuseAtStartup()); err != nil {
		return err
	}
	lines, total := s.daemon.Lines(q)
	out := api.Outbox{Entries: []statefs.OutboxItem{}, Total: total, TotalExact: true, OutboxStatus: s.daemon.Status()}
	if at := out.OldestAt; at != nil {
		out.OldestSeconds = int64(max(time.Since(*at), 0) / time.Second)
	}
	for i := range lines {
		item, err := s.tree.ShowEntry(lines[i].Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // delivered or removed since
		}
		if err != nil {
			return err
		}
		item.At, item.NextTryAt, item.TargetDown = lines[i].TargetName, lines[i].NextTryAt, lines[i].Target != nil &&
			lines[i].Target.Down
		out.Entries = append(out.Entries, item)
	}
	out.Next, out.Count = nextLine(lines, q), len(out.Entries)
	w.Header().Set("X-Total-Count", strconv.Itoa(total))
	w.Header().Set("X-Total-Count-Exact", "true")
	return w.SendJSON(http.StatusOK, out)
}

// outboxQuery parses the parameters of the list.
func (s *outboxControl) outboxQuery(in *front.Query, now time.Time) (*statefs.OutboxQuery, error) {
	q := &statefs.OutboxQuery{
		Target: in.Get("target"),
		Statuses: front.Choices(in, "status", []statefs.DeliveryStatus{
			statefs.DeliveryPending, statefs.DeliveryManual,
		}),
		Kinds: front.Choices(in, "kind", catalog.DeliveryKinds()),
		Of:    s.outboxOf(in),
		Limit: int(in.Number("limit", defaultListed, 0, maxListed)),
	}
	if text := in.Get("older_than"); text != "" {
		age, ok := param.ParseDuration(text)
		if !ok || age < 0 {
			in.Refuse(front.Invalid("older_than", "%s must be a time such as 90s, 1h or 2d", front.Quote(text)))
		}
		q.Before = now.Add(-age)
	}
	if text := in.Get("next"); text != "" {
		nanos, entry, _ := strings.Cut(text, ".")
		at, err := strconv.ParseInt(nanos, 10, 64)
		name, ok := statefs.ParseEntry(entry)
		if err != nil || !ok {
			in.Refuse(front.Invalid("next", "%s is not the member next of a page of this list", front.Quote(text)))
		}
		q.AfterAt, q.AfterName = time.Unix(0, at), name
	}
	return q, in.Err()
}

// outboxOf returns the filter by ID, nil when no parameter restricts the ID. An ID contains the endpoint name, which
// does not always determine group and job. The defined jobs decide; for jobs that no longer exist, the end of the name
// does.
func (s *outboxControl) outboxOf(q *front.Query) func(statefs.ID) bool {
	var all []func(statefs.ID) bool
	if text := q.Get("id"); text != "" {
		id, err := statefs.ParseID(text)
		q.Refuse(err)
		all = append(all, func(other statefs.ID) bool { return other == id })
	}
	if endpoint := q.Get("endpoint"); endpoint != "" {
		all = append(all, func(id statefs.ID) bool { return id.Endpoint() == endpoint })
	}
	if job := q.Get("job"); job != "" {
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
		return nil
	}
	return func(id statefs.ID) bool {
		return !slices.ContainsFunc(all, func(is func(statefs.ID) bool) bool { return !is(id) })
	}
}

func (s *outboxControl) routes() []front.Route {
	const body = `{"reason": "why", "by": "anna"}; each member may be left out`
	answers := []front.Answer{
		answer(200, front.MediaJSON, "It is carried out; each entry with its status now"),
		answer(202, front.MediaJSON, "The request is on disk, or it was not tried in the time of wait"),
		answer(409, front.ProblemType, "There is nothing to do, or nothing that a retry could change"),
	}
	return []front.Route{
		{
			Method: "GET", Path: "/api/v1/outbox", Handle: s.outbox,
			Summary: "What is to be delivered and is not yet, and how the targets are", Query: outboxParameters,
			Answers: ok("The entries, the oldest first; X-Total-Count has the number of all that match; oldest_seconds is the age of the oldest pending one of all", startupResponse),
		},
		{
			Method: "POST", Path: "/api/v1/outbox", Handle: s.outboxBulk,
			Summary: "Retry or drop all deliveries that match a filter, up to 1000 a call: each target is tried with one of them at once",
			Body:    `{"action", "filter", "dry_run", "next", "reason", "by"}: retry or drop; parameters of the list, none for a retry of all; only say which`,
			Answers: ok("How many match, and what was left as it is; next continues", startupResponse),
		},
		{
			Method: "POST", Path: "/api/v1/outbox/:entry/retry", Handle: s.requestDeliveryAction(statefs.RetryDelivery),
			Body: body, Answers: answers,
			Query: []front.Parameter{
				text("wait", "answer when it was tried, with the error if it failed, at most after this time (5s, 1m)"),
			},
			Summary: "Try a delivery now, even if it waits for a person or its target is down: an entry, as ID.1-webhook, or all of an operation",
		},
		{
			Method: "POST", Path: "/api/v1/outbox/:entry/drop", Handle: s.requestDeliveryAction(statefs.DropDelivery),
			Body: body, Answers: answers,
			Summary: "Give a delivery up: an entry, as ID.1-webhook, or all of an operation",
		},
	}
}
