package cli

import (
	"context"

	"github.com/jobdir/jobdir/control"
	"github.com/jobdir/jobdir/daemon"
	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/schedule"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/tally"
)

// status tells control what only the daemon knows.
type status struct{ daemon *daemon.Daemon }

func (s status) Health() control.Health {
	h := s.daemon.Health()
	out := control.Health{Ready: h.Ready, Draining: h.Draining, Watch: h.Watch, Live: h.Live, Counters: h.Counters}
	for _, t := range h.Troubles {
		out.Troubles = append(out.Troubles, control.Trouble(t))
	}
	return out
}

func (s status) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	return s.daemon.Sweep(ctx, dryRun)
}

func (s status) Schedules() ([]schedule.Status, error) { return s.daemon.Schedules() }

func (s status) DiskFailed(err error) { s.daemon.DiskFailed(err) }

func (s status) Ready() <-chan struct{} { return s.daemon.Ready() }

func (s status) States() map[statefs.State]int { return s.daemon.States() }

func (s status) Has(id statefs.ID) bool { return s.daemon.Has(id) }

func (s status) Stats() tally.Stats { return s.daemon.Stats() }

func (s status) Live() []history.Live { return s.daemon.Live() }

func (s status) Living() (*history.Living, []history.Live, bool) { return s.daemon.Living() }

func (s status) Waiting(id statefs.ID) (statefs.Waiting, bool) { return s.daemon.Waiting(id) }

func (s status) Followed(id statefs.ID, wake func()) (leave func()) {
	return s.daemon.Followed(id, wake)
}

func (s status) Lanes() statefs.LanesStatus { return s.daemon.LanesStatus() }

func (s status) Outbox() statefs.OutboxStatus { return s.daemon.Outbox() }

func (s status) OutboxLines(q *statefs.OutboxQuery) ([]statefs.OutboxLine, int) {
	return s.daemon.OutboxLines(q)
}

func (s status) LookAtEntry(ctx context.Context, name statefs.EntryName) error {
	return s.daemon.LookAtEntry(ctx, name)
}

func (s status) AwaitEntry(name statefs.EntryName) (<-chan struct{}, func()) {
	return s.daemon.AwaitEntry(name)
}

func (s status) AskDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAsk, args statefs.Args) (map[statefs.EntryName]error, error) {
	return s.daemon.AskDeliveries(ctx, names, ask, args)
}

func (s status) LookAtLanes() { s.daemon.LookAtLanes() }

func (s status) Delete(ctx context.Context, id statefs.ID) error { return s.daemon.Delete(ctx, id) }

func (s status) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	return s.daemon.Pin(ctx, id, pinned)
}

func (s status) Prune(ctx context.Context, dryRun bool) ([]history.Victim, error) {
	return s.daemon.Prune(ctx, dryRun)
}
