package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// The files of outbox/ are the authority of what is to be delivered, and people change them:
//
//	mv X.failed_manual X.pending, touch X.retry_requested ──"look now"──▶ look ──▶ record: pending ──▶ tried at once
//	rm X.pending, touch X.drop_requested ─────────────────▶ look ──▶ record: dropped ──▶ entry and request removed
//	mv X.pending X.failed_manual ─────────────────────────▶ look ──▶ record: failed_manual
//
// A look compares the files of one entry with its record and with what is in memory, while nothing else looks at the operation.

// entriesAtOnce is how many entries are looked at side by side: each look may write a record.
const entriesAtOnce = 32

// byHand is who asked when nobody knows.
const byHand = "by hand"

// openOutbox begins to watch outbox/. What is there is looked at by the start.
func (d *Daemon) openOutbox() (err error) {
	d.entries, err = watch.OpenDir(d.owner.OutboxDir(), func(file string) (statefs.EntryName, bool) {
		if name, _, err := statefs.ParseEntryName(file); err == nil {
			return name, true
		}
		name, _, ok := statefs.ParseDeliveryAsk(file)
		return name, ok
	}, d.config.Watch)
	if err != nil {
		return fmt.Errorf("watch %s: %w", d.owner.OutboxDir(), err)
	}
	return nil
}

// keepOutbox looks at what changes in outbox/ until ctx ends.
func (d *Daemon) keepOutbox(ctx context.Context) {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return
	}
	said := make(map[statefs.EntryName]string) // what could not be dealt with, and why
	odd := make(map[string]bool)
	for {
		var all bool
		var names []statefs.EntryName
		select {
		case <-d.entries.Ready():
			names, all = d.entries.Take()
		case <-d.wantOutbox:
			all = true
		case <-ctx.Done():
			return
		}
		if all {
			if err := d.entries.Check(); err != nil {
				d.fail(err)
				return
			}
			more, err := d.outboxDifferences(odd)
			if err != nil {
				d.logger.Error("the outbox cannot be listed; the next sweep tries again", "error", err)
			}
			names = append(names, more...)
		}
		d.lookAtEntries(ctx, names, said)
	}
}

// wantAllEntries has the outbox compared with what is in memory.
func (d *Daemon) wantAllEntries() {
	select {
	case d.wantOutbox <- struct{}{}:
	default:
	}
}

// outboxDifferences returns the entries whose files are not as is known, and those of which something is asked. What has a name that means nothing is said
// once, and then is in odd.
func (d *Daemon) outboxDifferences(odd map[string]bool) ([]statefs.EntryName, error) {
	if err := d.owner.TrimEntryList(); err != nil {
		return nil, err
	}
	files, err := d.owner.Outbox()
	if err != nil {
		return nil, err
	}
	for _, file := range files.Others {
		if !odd[file] {
			odd[file] = true
			d.logger.Warn("a file of outbox/ means nothing; it is left alone, and its operation is kept", "file", file)
		}
	}
	names := files.Asked
	present := make(map[statefs.EntryName]bool, len(files.Pending)+len(files.Manual))
	for _, name := range files.Pending {
		present[name] = true
		if !inOrder(d.outbox.Standing(name), true, false) {
			names = append(names, name)
		}
	}
	for _, name := range files.Manual {
		present[name] = true
		if !inOrder(d.outbox.Standing(name), true, true) {
			names = append(names, name)
		}
	}
	return append(names, d.outbox.Beside(present)...), nil // listed after the files, so most of these are new
}

// inOrder says whether what is known of an entry agrees with its files.
func inOrder(s outbox.Standing, has, manual bool) bool {
	switch s {
	case outbox.Unknown:
		return !has
	case outbox.Held:
		return has && manual
	case outbox.Expected, outbox.Waiting, outbox.Busy, outbox.Deferred:
	}
	return has && !manual
}

// lookAtEntries looks at several entries side by side. An error is said once for as long as it stays.
func (d *Daemon) lookAtEntries(ctx context.Context, names []statefs.EntryName, said map[statefs.EntryName]string) {
	d.eachEntry(names, func(name statefs.EntryName) error { return d.lookAtEntry(ctx, name) }, func(name statefs.EntryName, err error) {
		switch {
		case err == nil || ctx.Err() != nil:
			delete(said, name)
		case said[name] != err.Error():
			said[name] = err.Error()
			d.logger.Error("an entry of the outbox stays as it is", "entry", name, "error", err)
		}
	})
}

// eachEntry does something with each entry, several at a time, and then has done called with each, one at a time.
func (d *Daemon) eachEntry(names []statefs.EntryName, do func(statefs.EntryName) error, done func(statefs.EntryName, error)) {
	var workers sync.WaitGroup
	var mu sync.Mutex
	next := make(chan statefs.EntryName)
	for range min(entriesAtOnce, len(names)) {
		workers.Go(func() {
			for name := range next {
				err := do(name)
				mu.Lock()
				done(name, err)
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	workers.Wait()
}

// LookAtEntry has an entry looked at, and what is asked of it carried out, before it returns.
func (d *Daemon) LookAtEntry(ctx context.Context, name statefs.EntryName) error {
	select {
	case <-d.ready:
		return d.lookAtEntry(ctx, name)
	case <-d.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AwaitEntry says when an entry was tried: done is closed when a try of it ends that begins from now on, and when it is done with. stop must be called in
// the end.
func (d *Daemon) AwaitEntry(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	return d.outbox.Await(name)
}

func (d *Daemon) lookAtEntry(ctx context.Context, name statefs.EntryName) error {
	has, manual, err := d.owner.HasEntry(name)
	if err != nil {
		return err
	}
	if _, asked, err := d.owner.AskedDelivery(name); err != nil || !asked && inOrder(d.outbox.Standing(name), has, manual) {
		return err
	}
	return d.within(ctx, name.ID, func(op *operation) error {
		return d.settleEntry(ctx, op, name, d.outbox.Standing(name) != outbox.Unknown)
	})
}

// settleEntry brings an entry, its record and what is in memory in line, and carries out what is asked. known says that there was such an entry: one that is gone
// was removed by a person. Nothing else looks at the operation meanwhile.
func (d *Daemon) settleEntry(ctx context.Context, op *operation, name statefs.EntryName, known bool) error {
	has, manual, err := d.owner.HasEntry(name)
	if err != nil {
		return err
	}
	asked, isAsked, err := d.owner.AskedDelivery(name)
	if err != nil {
		return err
	}
	rec, err := d.endedRecord(op, name.ID)
	switch {
	case errors.Is(err, errNotYet) || err == nil && !rec.Status.Terminal():
		if isAsked {
			d.logger.Info("a request about a delivery has no effect: the operation has not ended", "entry", name, "asked", asked.Ask, "by", asked.By)
			return d.owner.Answered(asked)
		}
		return nil // its end may be about to be written
	case errors.Is(err, fs.ErrNotExist):
		return errors.Join(d.setEntryAside(name, has, manual), d.answered(asked, isAsked))
	case err != nil:
		return err
	}
	entry, _, err := d.owner.ReadEntry(name)
	if errors.Is(err, statefs.ErrNewerVersion) {
		return err
	}
	it := rec.Delivery(name.Place)
	if has && (it == nil || it.Kind != name.Kind || !isOpen(it)) { // its run says nothing here: optional steps have later ones
		return errors.Join(d.removeEntry(name), d.answered(asked, isAsked))
	}
	if it == nil || !isOpen(it) {
		d.outbox.Forget(name)
		return d.answered(asked, isAsked)
	}
	if err != nil {
		entry = d.newEntry(rec, name) // the record says what it is
	}
	switch {
	case isAsked && asked.Ask == statefs.DropDelivery:
		d.abandon(ctx, rec, name, entry)
		err = d.dropDelivery(rec, name, asked.By, asked.Reason)
	case isAsked && has:
		err = d.retryDelivery(rec, name, entry, asked.By, asked.Reason)
	case has && !manual && it.State == statefs.DeliveryManual:
		err = d.retryDelivery(rec, name, entry, byHand, "")
	case has && manual && it.State == statefs.DeliveryPending:
		err = d.holdDelivery(rec, name, entry)
	case has && manual:
		d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	case has:
		d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
	case known:
		err = d.dropDelivery(rec, name, byHand, "")
	}
	return errors.Join(err, d.answered(asked, isAsked && err == nil))
}

func isOpen(it *statefs.Delivery) bool {
	return it.State == statefs.DeliveryPending || it.State == statefs.DeliveryManual
}

func (d *Daemon) answered(asked statefs.AskedDelivery, isAsked bool) error {
	if !isAsked {
		return nil
	}
	return d.owner.Answered(asked)
}

// setEntryAside moves an entry of no operation to corrupt/.
func (d *Daemon) setEntryAside(name statefs.EntryName, has, manual bool) error {
	d.outbox.Forget(name)
	if !has {
		return nil
	}
	d.logger.Warn("an entry of the outbox has no record; it is set aside", "entry", name)
	d.owner.StrikeEntry(name)
	return d.owner.QuarantineEntry(name, manual, "its operation has no record")
}
