// Package delivery brings what an operation owes to the targets of its job, at least once to each, and lets people
// retry, hold and give up what is owed.
//
//	entry in outbox/ ─▶ sync ─▶ terminal record: pending ─▶ sync ─▶ ...
//	... ─▶ the target has it ─▶ record: delivered ─▶ sync ─▶ remove the entry
//
// An entry has no effect until its record is terminal and names the delivery. So an entry that a crash leaves without
// such a record is dropped, and no crash leaves a terminal record without its entries.
//
// The files of outbox/ are the authority on what is to be delivered, and people may change them:
//
//	mv X.failed_manual X.pending, touch X.retry_requested ──event──▶ reconcile ──▶ record: pending ──▶ tried at once
//	rm X.pending, touch X.drop_requested ──────────────────────────▶ reconcile ──▶ record: dropped ──▶ files removed
//	mv X.pending X.failed_manual ──────────────────────────────────▶ reconcile ──▶ record: failed_manual
//
// A reconcile compares the files of one entry with its record and the memory, while no other reconcile of the
// operation runs; decide says what follows. When an entry is tried, and how it is sent, is for daemon/outbox; records
// are written by the daemon. A failed sync ends the daemon.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// ErrNotEnded means that the terminal record of an operation is not written yet.
var ErrNotEnded = errors.New("the operation has not ended")

// Settings are what a person sets; the zero value suits production.
type Settings struct {
	// WebhookAllow lists the networks to which webhooks may connect in addition to the public ones.
	WebhookAllow []netip.Prefix
	// S3PartBytes is the part size of multipart uploads to buckets; 0 means
	// outbox.DefaultPartBytes.
	S3PartBytes int64
	// Workers is how many deliveries run at once, PerTarget how many of them at one target; 0 means
	// the default of outbox.Config.
	Workers, PerTarget int
	// Probe is the minimum time between two tries at a target that is down; 0 means
	// outbox.ProbeInterval.
	Probe time.Duration
}

// Config is what the deliveries work with.
type Config struct {
	Owner  *statefs.Owner
	Events *events.Log // may be nil
	Logger *slog.Logger
	Watch  watch.Options
	Settings

	AwaitReady func(context.Context) error // returns nil once all live operations are known
	Fail       func(error)                 // ends the daemon
	// Definition returns the definition under which an operation was submitted.
	Definition func(*statefs.Record) (*catalog.Definition, error)
	// Job is Definition with the values for the names of an ended operation. The definition is nil if it is lost for
	// good; the error is transient.
	Job func(*statefs.Record) (*catalog.Definition, catalog.Values, error)
	// Ended runs do while no reconcile of an operation runs, with its terminal record, or else the reason:
	// ErrNotEnded, or that of the read.
	Ended func(ctx context.Context, id statefs.ID, do func(*statefs.Record, error) error) error
	// Amend durably writes a terminal record again.
	Amend func(*statefs.Record) error
}

// Deliveries brings results to targets.
type Deliveries struct {
	config Config
	owner  *statefs.Owner
	events *events.Log
	logger *slog.Logger
	outbox *outbox.Outbox
	sender sender
	dir    *watch.Dir[statefs.EntryName]
	scan   chan struct{} // triggers a comparison of the whole folder with the memory
	counts counts
}

// New starts to watch outbox/. The files that already exist are for Recover.
func New(c Config) (*Deliveries, error) {
	d := &Deliveries{
		config: c, owner: c.Owner, events: c.Events, logger: c.Logger, scan: make(chan struct{}, 1),
		sender: sender{config: c, shared: outbox.NewShared(c.Owner.Dir(), c.WebhookAllow, c.S3PartBytes)},
		counts: counts{byKind: make(map[string]statefs.DeliveryCounts)},
	}
	d.outbox = outbox.New(outbox.Config{
		Workers: c.Workers, PerTarget: c.PerTarget, Probe: c.Probe, Deliver: d.try, Changed: d.publishTarget,
	})
	var err error
	if d.dir, err = watch.OpenDir(c.Owner.Outbox.Dir(), watchedName, c.Watch); err != nil {
		return nil, fmt.Errorf("watch %s: %w", c.Owner.Outbox.Dir(), err)
	}
	return d, nil
}

// Close releases what New opened. It is only for deliveries whose Watch is never called.
func (d *Deliveries) Close() error { return d.dir.Close() }

// Watch reconciles what changes in outbox/ until ctx ends or the watch fails.
func (d *Deliveries) Watch(ctx context.Context) error { return d.dir.RunWith(ctx, d.reconcileChanges) }

// Deliver tries the entries until ctx ends.
func (d *Deliveries) Deliver(ctx context.Context) {
	d.outbox.Run(ctx)
	d.sender.shared.Close()
}
