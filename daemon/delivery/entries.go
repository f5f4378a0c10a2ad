package delivery

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// maxEntriesAtOnce limits the entries that are reconciled concurrently: each may write a record.
const maxEntriesAtOnce = 32

// manualActor is recorded as the actor when a person moved or removed a file without giving a name.
const manualActor = "by hand"

// watchedName returns the entry of a file, for the watch of outbox/.
func watchedName(file string) (statefs.EntryName, bool) {
	if name, _, err := statefs.ParseEntryName(file); err == nil {
		return name, true
	}
	name, _, ok := statefs.ParseDeliveryRequest(file)
	return name, ok
}

// reconcileChanges reconciles what changes in outbox/ until ctx ends, once the daemon is ready.
func (d *Deliveries) reconcileChanges(ctx context.Context) error {
	if d.config.AwaitReady(ctx) != nil {
		return nil //nolint:nilerr // the daemon ends, and the watch with it
	}
	said := make(map[statefs.EntryName]string) // the last logged error of each entry
	odd := make(map[string]bool)
	for {
		var all bool
		var names []statefs.EntryName
		select {
		case <-d.dir.Ready():
			names, all = d.dir.Take()
		case <-d.scan:
			all = true
		case <-ctx.Done():
			return nil
		}
		if all {
			if err := d.dir.Check(); err != nil {
				d.config.Fail(err)
				return nil
			}
			more, err := d.differences(odd)
			if err != nil {
				d.logger.Error("outbox not listed, retrying at the next sweep", "error", err)
			}
			names = append(names, more...)
		}
		d.reconcileEntries(ctx, names, said)
	}
}

// ScanSoon requests a comparison of outbox/ with the memory.
func (d *Deliveries) ScanSoon() { notify.Wake(d.scan) }

// differences returns the entries whose files differ from what is known, and those with
// requests. It logs each file with an invalid name once; odd holds the logged names.
func (d *Deliveries) differences(odd map[string]bool) ([]statefs.EntryName, error) {
	if err := d.owner.Outbox.TrimList(); err != nil {
		return nil, err
	}
	files, err := d.owner.Outbox.List()
	if err != nil {
		return nil, err
	}
	for _, file := range files.Others {
		if !odd[file] {
			odd[file] = true
			d.logger.Warn("unknown file in outbox/ left alone; its operation is kept", "file", file)
		}
	}
	names := files.Requested
	present := make(map[statefs.EntryName]bool, len(files.Pending)+len(files.Manual))
	for i, name := range slices.Concat(files.Pending, files.Manual) {
		present[name] = true
		if manual := i >= len(files.Pending); !matchesFiles(d.outbox.State(name), true, manual) {
			names = append(names, name)
		}
	}
	return append(names, d.outbox.Except(present)...), nil // Except runs after the listing, so most of these are new
}

// matchesFiles reports whether the known state of an entry agrees with its files.
func matchesFiles(s outbox.EntryState, has, manual bool) bool {
	switch s {
	case outbox.Unknown:
		return !has
	case outbox.Held:
		return has && manual
	case outbox.Expected, outbox.Waiting, outbox.Busy, outbox.Deferred:
	}
	return has && !manual
}

// reconcileEntries reconciles several entries concurrently. It logs an error once, until it changes
// or is over.
func (d *Deliveries) reconcileEntries(ctx context.Context, names []statefs.EntryName, said map[statefs.EntryName]string) {
	d.eachEntry(names, func(name statefs.EntryName) error { return d.Reconcile(ctx, name) },
		func(name statefs.EntryName, err error) {
			switch {
			case err == nil || ctx.Err() != nil:
				delete(said, name)
			case said[name] != err.Error():
				said[name] = err.Error()
				d.logger.Error("outbox entry left alone", "entry", name, "error", err)
			}
		})
}

// eachEntry calls do for each entry, several at a time, and then done with the result, one at a
// time.
func (d *Deliveries) eachEntry(names []statefs.EntryName, do func(statefs.EntryName) error,
	done func(statefs.EntryName, error),
) {
	var mu sync.Mutex
	_ = statefs.ForEachParallel(names, maxEntriesAtOnce, func(name statefs.EntryName) error { // done gets the errors
		err := do(name)
		mu.Lock()
		defer mu.Unlock()
		done(name, err)
		return nil
	})
}

// Await reports attempts to deliver an entry: done is closed when an attempt that begins from
// now on ends, and when the entry is settled or removed. The caller must call stop.
func (d *Deliveries) Await(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	return d.outbox.Await(name)
}

// Reconcile reconciles an entry and carries out its request before it returns.
func (d *Deliveries) Reconcile(ctx context.Context, name statefs.EntryName) error {
	if err := d.config.AwaitReady(ctx); err != nil {
		return err
	}
	has, manual, err := d.owner.Outbox.Has(name)
	if err != nil {
		return err
	}
	if _, asked, err := d.owner.Outbox.Requested(name); err != nil || !asked &&
		matchesFiles(d.outbox.State(name), has, manual) {
		return err
	}
	return d.config.Ended(ctx, name.ID, func(rec *statefs.Record, err error) error {
		return d.sync(ctx, rec, err, name, d.outbox.State(name) != outbox.Unknown)
	})
}

// sync brings an entry, its record and the memory in line, and carries out the entry's request. err
// is why there is no record. known means that the entry existed: if it is gone, a person removed it.
// No other reconcile of the operation runs concurrently.
func (d *Deliveries) sync(ctx context.Context, rec *statefs.Record, err error, name statefs.EntryName,
	known bool,
) error {
	notFound := errors.Is(err, fs.ErrNotExist)
	if err != nil && !notFound && !errors.Is(err, ErrNotEnded) {
		return err
	}
	s := look{ended: err == nil && rec.Status.Terminal(), notFound: notFound, known: known}
	var asked statefs.DeliveryRequest
	if s.has, s.manual, err = d.owner.Outbox.Has(name); err != nil {
		return err
	}
	if asked, s.asked, err = d.owner.Outbox.Requested(name); err != nil {
		return err
	}
	s.drop = s.asked && asked.Action == statefs.DropDelivery
	var entry *statefs.OutboxEntry
	if s.ended {
		if entry, err = d.readEntry(rec, name); err != nil {
			return err
		}
		if it := rec.Delivery(name.Place); it != nil {
			s.state, s.otherKind = it.State, it.Kind != name.Kind
		}
	}
	what := decide(s)
	if what == ignore && s.asked {
		d.logger.Info("a request about a delivery has no effect: the operation has not ended", "entry", name, "asked",
			asked.Action, "by", asked.By)
	}
	if err := d.carryOut(ctx, what, s, rec, name, entry, asked); err != nil || !s.asked {
		return err
	}
	return d.owner.Outbox.DropRequest(asked)
}

// carryOut carries out what was decided about an entry.
func (d *Deliveries) carryOut(ctx context.Context, what action, s look, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry, asked statefs.DeliveryRequest,
) error {
	switch what {
	case ignore:
	case setAside:
		return d.quarantine(name, s.has, s.manual)
	case remove:
		return d.removeEntry(name)
	case forget:
		d.outbox.Forget(name)
	case giveUp:
		d.sender.abort(ctx, rec, name, entry)
		return d.drop(rec, name, asked.By, asked.Reason)
	case giveUpRemoved:
		return d.drop(rec, name, manualActor, "")
	case retryAsked:
		return d.retry(rec, name, entry, asked.By, asked.Reason)
	case retryMoved:
		return d.retry(rec, name, entry, manualActor, "")
	case holdMoved:
		return d.hold(rec, name, entry)
	case keepHeld:
		d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	case keep:
		d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
	}
	return nil
}

// readEntry returns an entry. If its file cannot be read, it returns a new one: the record has what a
// try needs. The only error is statefs.ErrNewerVersion.
func (d *Deliveries) readEntry(rec *statefs.Record, name statefs.EntryName) (*statefs.OutboxEntry, error) {
	entry, _, err := d.owner.Outbox.Read(name)
	switch {
	case errors.Is(err, statefs.ErrNewerVersion):
		return nil, err
	case err != nil:
		return d.newEntry(rec, name), nil //nolint:nilerr // documented above
	}
	return entry, nil
}

// quarantine moves an entry without an operation to corrupt/.
func (d *Deliveries) quarantine(name statefs.EntryName, has, manual bool) error {
	d.outbox.Forget(name)
	if !has {
		return nil
	}
	d.logger.Warn("outbox entry without a record moved to corrupt/", "entry", name)
	d.owner.Outbox.Strike(name)
	return d.owner.Outbox.Quarantine(name, manual, "its operation has no record")
}
