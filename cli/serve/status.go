package serve

import (
	"context"

	"github.com/jobdir/jobdir/control"
	"github.com/jobdir/jobdir/daemon"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// status gives control the information that only the daemon has.
type status struct{ daemon *daemon.Daemon }

func (s status) Health() control.Health {
	h := s.daemon.Health()
	out := control.Health{Ready: h.Ready, Draining: h.Draining, Watch: h.Watch, Live: h.Live, Counters: h.Counters}
	for _, t := range h.FailingOperations {
		out.FailingOperations = append(out.FailingOperations, control.FailingOperation(t))
	}
	return out
}

func (s status) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	return s.daemon.Sweep(ctx, dryRun)
}

func (s status) Schedules() ([]api.Schedule, error) { return s.daemon.Schedules() }

func (s status) DiskFailed(err error) { s.daemon.DiskFailed(err) }

func (s status) RecordUnreadable(id statefs.ID) { s.daemon.RecordUnreadable(id) }

func (s status) Ready() <-chan struct{} { return s.daemon.Ready() }

func (s status) States() map[statefs.State]int { return s.daemon.States() }

func (s status) CarriedOut(id statefs.ID) (statefs.NameSet, bool) { return s.daemon.CarriedOut(id) }

func (s status) Stats() tally.Stats { return s.daemon.Stats() }

func (s status) Live() []history.Live { return s.daemon.Live() }

func (s status) LiveIndex() (*history.LiveIndex, []history.Live, bool) { return s.daemon.LiveIndex() }

func (s status) Waiting(id statefs.ID) (statefs.Waiting, bool) { return s.daemon.Waiting(id) }

func (s status) Follow(id statefs.ID, wake func()) (leave func()) {
	return s.daemon.Follow(id, wake)
}

func (s status) Lanes() statefs.LanesStatus { return s.daemon.LanesStatus() }

func (s status) Outbox() statefs.OutboxStatus { return s.daemon.Outbox() }

func (s status) OutboxLines(q *statefs.OutboxQuery) ([]statefs.OutboxLine, int) {
	return s.daemon.OutboxLines(q)
}

func (s status) ReconcileEntry(ctx context.Context, name statefs.EntryName) error {
	return s.daemon.ReconcileEntry(ctx, name)
}

func (s status) AwaitEntry(name statefs.EntryName) (<-chan struct{}, func()) {
	return s.daemon.AwaitEntry(name)
}

func (s status) RequestDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
	args statefs.Args,
) (map[statefs.EntryName]error, error) {
	return s.daemon.RequestDeliveries(ctx, names, ask, args)
}

func (s status) ReconcileLanes() { s.daemon.ReconcileLanes() }

func (s status) Delete(ctx context.Context, id statefs.ID) error { return s.daemon.Delete(ctx, id) }

func (s status) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	return s.daemon.Pin(ctx, id, pinned)
}

func (s status) Prune(ctx context.Context, dryRun bool) ([]history.Victim, error) {
	return s.daemon.Prune(ctx, dryRun)
}
