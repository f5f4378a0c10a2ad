package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

func (d *directory) Outbox(_ context.Context, q *OutboxQuery) (*client.Outbox, error) {
	if q.Target != "" {
		return nil, exit.Usagef("flag --target: no daemon is running on %s, and the directory does not contain the names of targets",
			d.tree.Dir())
	}
	files, err := d.tree.Outbox.List()
	if err != nil {
		return nil, err
	}
	all := &client.Outbox{Entries: []statefs.OutboxItem{}}
	all.Pending, all.FailedManual, all.Targets, all.Kinds = len(files.Pending), len(files.Manual),
		[]statefs.OutboxTarget{}, map[string]statefs.DeliveryCounts{}
	before := time.Now().Add(-q.Older)
	for _, name := range slices.Concat(files.Pending, files.Manual) {
		item, err := d.tree.ShowEntry(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if item.Status == statefs.DeliveryPending && (all.OldestAt == nil || item.CreatedAt.Before(*all.OldestAt)) {
			all.OldestAt = &item.CreatedAt
		}
		if q.matches(&item, before) {
			all.Entries = append(all.Entries, item)
		}
	}
	if all.OldestAt != nil {
		all.OldestSeconds = int64(max(time.Since(*all.OldestAt), 0) / time.Second)
	}
	slices.SortFunc(all.Entries, func(a, b statefs.OutboxItem) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Entry, b.Entry))
	})
	all.Total = len(all.Entries)
	if q.Limit > 0 && all.Total > q.Limit {
		all.Entries = all.Entries[:q.Limit]
	}
	return all, nil
}

// matches reports whether the query selects an entry; before is the time for OlderThan.
func (q *OutboxQuery) matches(e *statefs.OutboxItem, before time.Time) bool {
	return (len(q.Status) == 0 || slices.Contains(q.Status, string(e.Status))) &&
		(len(q.Kind) == 0 || slices.Contains(q.Kind, e.Kind)) &&
		(q.Job == "" || q.Job == e.Job || q.Job == e.Group+"/"+e.Job) &&
		(q.OlderThan == "" || e.CreatedAt.Before(before))
}

func (d *directory) RequestDelivery(_ context.Context, entry string, action statefs.DeliveryAction, args statefs.Args,
	_ time.Duration,
) (answers []client.DeliveryAnswer, err error) {
	names, err := d.openDeliveries(entry, action)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := d.tree.Outbox.Request(name, action, args); err != nil {
			return answers, err
		}
		message := fmt.Sprintf("%s requested for %s", strings.ToUpper(string(action[:1]))+string(action[1:]), name)
		answers = append(answers, client.DeliveryAnswer{Message: message})
	}
	return answers, nil
}

// openDeliveries finds what a request without a daemon can name: an entry, or all entries of an operation.
func (d *directory) openDeliveries(text string, ask statefs.DeliveryAction) (names []statefs.EntryName, err error) {
	name, single := statefs.ParseEntry(text)
	id := name.ID
	if !single {
		if id, err = statefs.ParseID(text); err != nil {
			return nil, err
		}
	}
	rec, err := d.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFoundf("there is no operation %s", id)
	}
	if err != nil {
		return nil, err
	}
	for i := range rec.Deliveries {
		it := &rec.Deliveries[i]
		of := statefs.EntryName{ID: id, Place: it.Place, Kind: it.Kind}
		if single && of != name || it.State != statefs.DeliveryPending && it.State != statefs.DeliveryManual {
			continue
		}
		has, _, err := d.tree.Outbox.Has(of)
		if err != nil {
			return nil, err
		}
		if has || ask == statefs.DropDelivery {
			names = append(names, of)
		}
	}
	if len(names) == 0 {
		return nil, exit.NotFoundf("%s has no pending delivery to retry or drop", text)
	}
	return names, nil
}

func (d *directory) EnableSchedule(_ context.Context, group, job string, on bool) (*client.Schedule, error) {
	return nil, d.tree.Schedules.Enable(group+"-"+job, on)
}

func (d *directory) Sweep(_ context.Context, dryRun bool) ([]statefs.Finding, error) {
	if dryRun {
		return d.tree.PlanSweep(nil)
	}
	owner, err := statefs.Own(d.tree)
	if err != nil {
		return nil, err
	}
	findings, err := owner.Sweep(nil)
	return findings, errors.Join(err, owner.Release())
}

func (d *directory) Prune(ctx context.Context, dryRun bool) (*client.Pruned, error) {
	victims, err := pruneTree(ctx, d.tree, &d.conf.Upkeep, dryRun)
	pruned := &client.Pruned{Count: len(victims), DryRun: dryRun, Operations: []client.PrunedOperation{}}
	for _, v := range victims {
		pruned.Operations = append(pruned.Operations, client.PrunedOperation(v))
		pruned.Bytes += v.Bytes
	}
	return pruned, err
}

// pruneTree prunes a storage without a daemon.
func pruneTree(ctx context.Context, tree *statefs.Tree, keep *config.Upkeep, dryRun bool,
) (victims []history.Victim, err error) {
	owner, err := statefs.Own(tree)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, owner.Release()) }()
	store, err := history.Open(owner, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	store.SetDeletedIDRetention(keep.IdempotencyAge)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { _ = store.Run(running) }) // it always returns nil
	store.CaughtUp()
	select {
	case <-store.Built():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if dryRun {
		guards, err := guardsOf(owner)
		if err != nil {
			return nil, err
		}
		return store.Plan(ctx, keep.Retention, guards, time.Now())
	}
	return store.Prune(ctx, keep.Retention, func() (history.Guards, error) { return guardsOf(owner) }, time.Now())
}

// guardsOf finds reasons to keep finished operations that are not in the index.
func guardsOf(owner *statefs.Owner) (g history.Guards, err error) {
	if g.Undelivered, err = owner.Outbox.Undelivered(); err != nil {
		return g, err
	}
	listing, err := owner.List()
	if err != nil {
		return g, err
	}
	for _, marker := range listing.Markers {
		if rec, err := owner.ReadRecord(marker.ID); err == nil {
			g.Refer(rec)
		}
	}
	return g, nil
}
