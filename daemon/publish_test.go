package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/steps"
)

// tellEvents gives the daemons of a bench an event log.
func (b *bench) tellEvents() {
	b.t.Helper()
	owner, err := statefs.Own(b.tree)
	must(b.t, err)
	b.config.Events, err = events.Open(owner, events.Options{})
	must(b.t, err)
	must(b.t, owner.Release()) // the lock is not needed for writing events
	b.t.Cleanup(func() { must(b.t, b.config.Events.Close()) })
}

// toldOf waits until a reader has received the wanted events, written as lines.
func (b *bench) toldOf(r *events.Reader, want ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	var got []string
	for len(got) < len(want) {
		wake := r.Wake()
		frames, more := r.Take()
		for _, f := range frames {
			got = append(got, inWords(f.Event))
		}
		if more || len(got) >= len(want) {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			b.t.Fatalf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func inWords(e *api.Event) string {
	switch e.Type {
	case events.Transition:
		out := fmt.Sprintf("%s/%s %s>%s %s", e.Group, e.Job, e.From, e.To, e.Cause)
		if e.To.Terminal() {
			out += fmt.Sprintf(" %s %v", e.Result, e.FinishedSeq > 0)
		}
		if e.Error != nil {
			out += " " + e.Error.Code
		}
		return out
	case events.StepChanged:
		return strings.TrimSpace(fmt.Sprintf("step %d/%d %s %s run %d %s", e.Number, e.Total, e.Step, e.Status,
			e.Run, e.ErrorCode))
	case events.Progress:
		return fmt.Sprintf("progress %d/%d %s", e.Progress.Done, *e.Progress.Total, e.Progress.Phase)
	case events.Stalled:
		return fmt.Sprintf("stalled %v", *e.Stalled)
	case events.Delivery:
		text := fmt.Sprintf("%d %s", e.Delivery.Target, e.Delivery.Status)
		if e.Delivery.By != "" {
			text += " by " + e.Delivery.By
		}
		return text
	case events.TargetChanged:
		if e.Target.Down {
			return e.Target.Name + " down: " + e.Target.Error
		}
		return e.Target.Name + " up"
	case events.Swept:
		return fmt.Sprintf("sweep %d %q", e.Sweep.Findings, e.Sweep.Files)
	case events.LaneChanged:
		out := fmt.Sprintf("lane %s %s %s", e.Lane, e.Change.What, e.Change.Reason)
		if e.Change.Capacity != nil {
			out += fmt.Sprintf(" %d", *e.Change.Capacity)
		}
		return out
	case events.WaitReason:
		return strings.TrimSuffix(fmt.Sprintf("%s waits: %s %s", e.Job, e.Waiting.Reason, e.Waiting.Note), " ")
	case events.Missing:
	}
	return e.Type
}

const toldJobs = `
group: test
name: steps
handler: steps
tags: [nightly]
---
group: test
name: fails
handler: fails
---
group: test
name: silent
stall_after: 2s
handler: silent
`

func TestEveryTransitionIsPublishedOnce(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	b := prepare(t, toldJobs, work.Handlers{
		"steps": {Run: func(ctx context.Context, op *work.Op) error {
			for range 2 {
				select {
				case <-goOn:
				case <-ctx.Done():
					return ctx.Err()
				}
				if err := op.Checkpoint(); err != nil {
					return err
				}
			}
			return nil
		}},
		"fails":  {Run: func(context.Context, *work.Op) error { return errors.New("no luck") }},
		"silent": {Run: func(ctx context.Context, op *work.Op) error { <-goOn; op.Logf("here"); <-goOn; return nil }},
	})
	b.tellEvents()
	offline := b.submit("fails", "{}") // while no daemon runs
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Transition, events.Stalled}}, 0)
	defer r.Close()
	b.start()
	b.awaitEnd(offline)
	b.toldOf(r, "test/fails >queued submit", "test/fails queued>running start",
		"test/fails running>failed failed failure true handler_failed")

	id := b.submit("steps", "{}")
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Pause)
	b.await("the pause is taken", func() bool { return strings.Contains(b.log(id), linePause) })
	goOn <- struct{}{}
	b.awaitState(id, statefs.Paused)
	b.mv(statefs.MarkerName(id, statefs.Paused), statefs.MarkerName(id, statefs.Running))
	goOn <- struct{}{}
	b.awaitEnd(id)
	b.toldOf(r, "test/steps >queued submit", "test/steps queued>running start", "test/steps running>paused pause",
		"test/steps paused>running resume", "test/steps running>completed done success true")

	// The next daemon does not publish earlier transitions of an adopted operation again.
	id = b.submit("steps", "{}")
	b.awaitState(id, statefs.Running)
	must(t, b.stop())
	b.toldOf(r, "test/steps >queued submit", "test/steps queued>running start", "test/steps running>queued interrupted")
	b.start()
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
	b.toldOf(r, "test/steps queued>running start", "test/steps running>cancelled cancel cancelled true")

	id = b.submit("silent", "{}")
	b.toldOf(r, "test/silent >queued submit", "test/silent queued>running start", "stalled true")
	goOn <- struct{}{}
	b.toldOf(r, "stalled false")
	goOn <- struct{}{}
	b.awaitEnd(id)

	tagged := b.config.Events.Follow(events.Filter{Tags: []string{"nightly"}, Types: []events.Type{events.Transition}}, 0)
	defer tagged.Close()
	b.toldOf(tagged, "test/steps >queued submit", "test/steps queued>running start", "test/steps running>paused pause",
		"test/steps paused>running resume", "test/steps running>completed done success true",
		"test/steps >queued submit", "test/steps queued>running start", "test/steps running>queued interrupted",
		"test/steps queued>running start", "test/steps running>cancelled cancel cancelled true")
}

func TestProgressIsPublishedWhenItChanges(t *testing.T) {
	t.Parallel()
	b := prepare(t, toldJobs, work.Handlers{"steps": {Run: func(_ context.Context, op *work.Op) error {
		op.Progress(1, 3, "LOADING")
		return nil
	}}, "fails": {}, "silent": {}})
	b.tellEvents()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Progress}}, events.Now)
	defer r.Close()
	b.start()
	b.awaitEnd(b.submit("steps", "{}"))
	b.toldOf(r, "progress 1/3 LOADING")
}

func TestSweepIsPublished(t *testing.T) {
	t.Parallel()
	b := prepare(t, toldJobs, work.Handlers{"steps": {}, "fails": {}, "silent": {}})
	b.tellEvents()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Swept}}, events.Now)
	defer r.Close()
	name := "gone-job_2026-01-01_00-00-00_p1_r7.pause_requested"
	must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), name), nil, 0o600))
	old := b.now().AddDate(0, 0, -1)
	must(t, os.Chtimes(filepath.Join(b.tree.JobsDir(), name), old, old))
	b.start()
	_, err := b.daemon.Sweep(t.Context(), false)
	must(t, err)
	b.toldOf(r, fmt.Sprintf("sweep 1 [%q]", "jobs/"+name))
}

// A restart does not publish the waiting reasons of all operations again.
func TestAStartDoesNotRepeatWhyEverythingWaits(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	b.tellEvents()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.WaitReason}}, 0)
	b.start() // without the lane
	first := b.submit("one", `{}`)
	b.toldOf(r, "one waits: "+string(statefs.WaitsUnknownLane))
	last := r.Position()
	r.Close()
	must(t, b.stop())
	must(t, b.config.Events.Close())
	owner, err := statefs.Own(b.tree)
	must(t, err)
	b.config.Events, err = events.Open(owner, events.Options{})
	must(t, err)
	must(t, owner.Release())
	r = b.config.Events.Follow(events.Filter{Types: []events.Type{events.WaitReason}}, last)
	defer r.Close()
	b.start()
	second := b.submit("one", `{}`)
	b.toldOf(r, "one waits: "+string(statefs.WaitsUnknownLane))
	for _, id := range []statefs.ID{first, second} {
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
	if frames, _ := r.Take(); len(frames) > 0 {
		t.Errorf("told of %d more", len(frames))
	}
}

func TestStepChangesArePublished(t *testing.T) {
	t.Parallel()
	b := prepare(t, toldJobs, work.Handlers{"steps": {}, "fails": {}, "silent": {}})
	b.tellEvents()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.StepChanged}}, events.Now)
	defer r.Close()
	b.start()
	rec := &statefs.Record{ID: b.submit("steps", "{}"), Group: "test", Job: "steps", Run: 4, Steps: []steps.Step{
		{Name: "ingest", Status: steps.Succeeded, Run: 1},
		{Name: "split", Status: steps.FailedManual, Run: 2, Retries: 1, ErrorCode: "exit_code"},
		{Name: "extra", Status: steps.Pending, Optional: true},
	}}
	for i := range rec.Steps {
		b.daemon.publishStep(rec, &rec.Steps[i])
	}
	b.toldOf(r, "step 1/3 ingest succeeded run 1", "step 2/3 split failed_manual run 2 exit_code",
		"step 3/3 extra pending run 0")
}
