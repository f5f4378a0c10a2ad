package daemon

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// stopsAt is a log handler that blocks at a line, and with it the reconcile that logs the line.
type stopsAt struct {
	slog.Handler

	line       string
	there, let chan struct{}
}

func (s *stopsAt) Handle(_ context.Context, record slog.Record) error {
	if record.Message == s.line {
		s.there <- struct{}{}
		<-s.let
	}
	return nil
}

func (s *stopsAt) Enabled(context.Context, slog.Level) bool { return true }

// A request that is observed by the same reconcile that ends one step and begins the next is
// carried out without any further event.
func TestRequestBesideTheEndOfAStep(t *testing.T) {
	t.Parallel()
	ends, stops := make(chan struct{}), &stopsAt{
		Handler: slog.DiscardHandler, line: "request refused",
		there: make(chan struct{}), let: make(chan struct{}),
	}
	b := prepare(t, `
group: test
name: two
steps:
  - {name: one, handler: one}
  - {name: two, needs: [one], handler: waits}
`, work.Handlers{"waits": sideHandlers["waits"], "one": {Run: func(context.Context, *work.Op) error { <-ends; return nil }}})
	b.config.Logger, b.config.SweepInterval = slog.New(stops), time.Hour // a sweep would find it
	b.start()
	id := b.submit("two", `{}`)
	b.awaitLog(id, "one")
	b.touch(id, statefs.Skip) // does not apply to a running step
	<-stops.there
	op := b.daemon.operation(id) // owned by the blocked reconcile
	run, before := op.run, op.events.Load()
	b.touch(id, statefs.Pause)
	b.poll("the watch has told of the request", func() bool { return op.events.Load() > before })
	close(ends)
	b.poll("the first step has ended", run.Ended)
	close(stops.let)
	if rec := b.record(id, statefs.Paused); statuses(rec) != "one=succeeded two=running" {
		t.Error(statuses(rec))
	}
	b.touch(id, statefs.Resume)
	b.artifact(id, "on")
	b.awaitEnd(id)
}
