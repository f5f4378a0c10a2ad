package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/daemon/alarm"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

const secondly = `
group: test
name: tick
params:
  who: {type: string, required: true}
schedule: {cron: "* * * * * *", params: {who: "the clock"}}
run: [echo, "${params.who}"]
`

// started returns the records that a schedule started, by slot.
func (b *bench) started(job string) map[string]*statefs.Record {
	b.t.Helper()
	found := make(map[string]*statefs.Record)
	days, err := os.ReadDir(filepath.Join(b.dir, "operations"))
	must(b.t, err)
	for _, day := range days {
		files, err := b.tree.ListDay(day.Name())
		must(b.t, err)
		for _, id := range files.Records {
			rec, err := b.tree.ReadRecord(id)
			must(b.t, err)
			slot, ok := strings.CutPrefix(rec.IdempotencyKey, "schedule test/"+job+" ")
			if !ok {
				continue
			}
			if other := found[slot]; other != nil {
				b.t.Errorf("slot %s fired twice: %s, %s", slot, other.ID, rec.ID)
			}
			found[slot] = rec
		}
	}
	return found
}

// awaitSchedule waits until so holds for the schedule of a job. It looks again and again: the daemon writes the file of
// a schedule before it knows of the change itself, so an event of the file would come too early.
func (b *bench) awaitSchedule(job string, so func(api.Schedule) bool) api.Schedule {
	b.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		all, err := b.daemon.Trigger.Schedules()
		must(b.t, err)
		for _, s := range all {
			if s.Job == "test/"+job && so(s) {
				return s
			}
		}
		select {
		case <-again.C:
		case <-late.C:
			b.t.Fatalf("waited in vain: %+v", all)
		}
	}
}

func (b *bench) awaitStarted(job string, count int) map[string]*statefs.Record {
	b.t.Helper()
	var found map[string]*statefs.Record
	b.await(job+" is started", func() bool {
		found = b.started(job)
		return len(found) >= count
	})
	return found
}

// A job starts once per slot of its schedule, with the parameters of the schedule, and not while a
// file disables it.
func TestJobStartsByItsSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t, secondly, testHandlers)
	for slot, rec := range b.awaitStarted("tick", 2) {
		at, err := time.Parse(time.RFC3339, slot)
		if err != nil || rec.CreatedAt.Before(at) || rec.CreatedBy != "schedule" ||
			string(rec.Params) != `{"who":"the clock"}` {
			t.Errorf("slot %s: %s, by %q with %s", slot, rec.CreatedAt, rec.CreatedBy, rec.Params)
		}
	}
	must(t, os.WriteFile(filepath.Join(b.dir, "schedules", "test-tick.disabled"), nil, 0o640))
	all, err := b.daemon.Trigger.Schedules()
	if err != nil || len(all) != 1 || all[0].Job != "test/tick" || all[0].Enabled || all[0].Next != nil ||
		all[0].Timezone != "UTC" || all[0].Last == nil {
		t.Errorf("%+v, %v", all, err)
	}
	b.awaitSchedule("tick", func(s api.Schedule) bool { return s.Skipped == "the schedule is off" })
	before := len(b.started("tick"))
	must(t, b.tree.Schedules.Enable("test-tick", true))
	after := b.awaitStarted("tick", before+1)
	all, err = b.daemon.Trigger.Schedules()
	if err != nil || !all[0].Enabled || all[0].Next == nil {
		t.Errorf("%d starts, %+v, %v", len(after), all, err)
	}
}

// scheduleState is the content of schedules/ENDPOINT.json, and firing the slots in it that are being fired.
type scheduleState struct {
	Version   int              `json:"version"`
	Job       string           `json:"job"`
	Cron      string           `json:"cron"`
	Timezone  string           `json:"timezone"`
	Handled   schedule.Handled `json:"handled"`
	Firing    *firing          `json:"firing,omitempty"`
	Operation string           `json:"operation,omitempty"`
}

type firing struct {
	At      time.Time        `json:"at"`
	Slots   []time.Time      `json:"slots"`
	Overlap schedule.Overlap `json:"overlap"`
	Handled schedule.Handled `json:"handled"`
}

// keepSlots writes the state of a schedule as an earlier daemon would have left it.
func (b *bench) keepSlots(job string, kept scheduleState) {
	b.t.Helper()
	data, err := json.Marshal(kept)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(b.dir, "schedules", "test-"+job+".json"), data, 0o640))
}

// A daemon fires missed slots as the job says. After a kill between the submit and the record of it
// nothing is submitted twice. A schedule with another expression begins anew.
func TestSlotsAroundARestart(t *testing.T) {
	t.Parallel()
	const jobs = `
{group: test, name: once, schedule: {cron: "0 * * * *"}, run: ["true"]}
---
{group: test, name: all, schedule: {cron: "0 * * * *", missed: all}, run: ["true"], unique: {on_hit: "off"}}
---
{group: test, name: queue, schedule: {cron: "0 * * * *", missed: all, overlap: queue}, run: ["true"]}
---
{group: test, name: cancel, schedule: {cron: "0 * * * *", missed: all, overlap: cancel_previous}, run: ["true"]}
---
{group: test, name: skip, schedule: {cron: "0 * * * *", missed: skip}, run: ["true"]}
---
{group: test, name: new, schedule: {cron: "0 * * * *", missed: all}, run: ["true"]}
---
{group: test, name: changed, schedule: {cron: "0 * * * *", missed: all}, run: ["true"]}
`
	b := prepare(t, jobs, nil)
	b.jump.Store(int64(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 30*time.Minute)))) // half past
	now := b.now().Truncate(time.Hour)
	for _, job := range []string{"once", "all", "queue", "cancel", "skip", "changed"} {
		kept := scheduleState{
			Version: 1, Job: "test/" + job, Cron: "0 * * * *",
			Handled: schedule.Begin(now.Add(-4*time.Hour + time.Minute)),
		}
		if job == "changed" {
			kept.Cron = "30 * * * *"
		}
		b.keepSlots(job, kept)
	}
	b.start()
	hour := func(back int) string { return now.Add(-time.Duration(back) * time.Hour).UTC().Format(time.RFC3339) }
	each := []string{hour(3), hour(2), hour(1), hour(0)}
	want := map[string][]string{
		"once": {hour(0)}, "all": each, "queue": each, "cancel": each, "skip": nil,
		"new": nil, "changed": nil,
	}
	check := func() {
		t.Helper()
		for job, slots := range want {
			var got []string
			for slot := range b.awaitStarted(job, len(slots)) {
				got = append(got, slot)
			}
			if slices.Sort(got); !slices.Equal(got, slots) {
				t.Errorf("%s: slots %v, want %v", job, got, slots)
			}
		}
	}
	check()
	must(t, b.stop())
	// As after a crash before the submit was recorded.
	b.keepSlots("once", scheduleState{
		Version: 1, Job: "test/once", Cron: "0 * * * *",
		Handled: schedule.Begin(now.Add(-time.Minute)),
	})
	b.start()
	check()
}

// After a kill in the middle of a firing, the next daemon finishes it, whatever the job says about
// missed slots: submitted operations stay, the previous operation is cancelled, and the next slot
// waits for its predecessor. A slot that was not submitted counts as missed.
func TestAFiringThatWasCutShort(t *testing.T) {
	t.Parallel()
	const hourly, other = "0 * * * *", "30 * * * *"
	jobs := `
{group: test, name: made, schedule: {cron: "0 * * * *", missed: skip, overlap: cancel_previous}, handler: wait}
---
{group: test, name: changed, schedule: {cron: "0 * * * *", missed: skip, overlap: cancel_previous}, handler: wait}
---
{group: test, name: unmade, schedule: {cron: "0 * * * *", missed: skip, overlap: cancel_previous}, handler: wait}
---
{group: test, name: newer, schedule: {cron: "0 * * * *", overlap: queue}, handler: wait}
`
	b := prepare(t, jobs, testHandlers)
	b.jump.Store(int64(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 30*time.Minute)))) // half past
	b.start()
	now := b.now()
	// The slot before the last one: it is late, and the job that fires one missed slot has another
	// one due.
	slot := now.Truncate(time.Hour).Add(-time.Hour)
	last := make(map[string]statefs.ID)
	made := make(map[string]statefs.ID)
	intake := submit.NewIntake(submit.Config{Tree: b.tree})
	intake.Ready()
	for _, job := range []string{"made", "changed", "unmade", "newer"} {
		def := b.daemon.config.Catalog.Get("test", job)
		submitted := func(o submit.Options) statefs.ID {
			t.Helper()
			o.IdempotencyKey = cmp.Or(o.IdempotencyKey, "before "+job)
			outcomes, err := intake.Submit(t.Context(), submit.Request{
				Definition: def, Options: o,
				By: "schedule", ForceNew: true,
			})
			must(t, err)
			return outcomes[0].Record.ID
		}
		last[job] = submitted(submit.Options{})
		b.awaitState(last[job], statefs.Running)
		if job != "unmade" {
			made[job] = submitted(submit.Options{
				IdempotencyKey: "schedule " + def.Address() + " " + slot.UTC().Format(time.RFC3339), After: []statefs.ID{last[job]},
				Require: statefs.RequireEnd,
			})
		}
	}
	must(t, b.stop())
	before := schedule.Begin(slot.Add(-time.Minute))
	for job, id := range last {
		kept := scheduleState{
			Version: 1, Job: "test/" + job, Cron: hourly, Handled: before,
			Operation: id.String(),
		}
		kept.Firing = &firing{
			At: now, Slots: []time.Time{slot}, Overlap: schedule.OverlapCancel,
			Handled: schedule.Handled{{From: before[0].From, To: slot}},
		}
		switch job {
		case "changed":
			kept.Cron = other
		case "newer":
			kept.Firing.Overlap = schedule.OverlapQueue
		}
		b.keepSlots(job, kept)
	}
	b.start()
	for _, job := range []string{"made", "changed"} {
		if rec := b.awaitEnd(last[job]); rec.Status != statefs.Cancelled {
			t.Errorf("%s: the one before is %s", job, rec.Status)
		}
		b.awaitState(made[job], statefs.Running)
		if s := b.awaitSchedule(job,
			func(s api.Schedule) bool { return s.Operation == made[job].String() }); !s.Last.Equal(slot) {
			t.Errorf("%s: the last slot is %s, want %s", job, s.Last, slot)
		}
	}
	b.awaitSchedule("unmade", func(s api.Schedule) bool { return s.Operation == last["unmade"].String() })
	if state, err := b.tree.State(last["unmade"]); err != nil || state != statefs.Running ||
		len(b.started("unmade")) != 0 {
		t.Errorf("the operation of a slot that is gone has cancelled the one before: %s, %v", state, err)
	}
	next := b.awaitStarted("newer", 2)[now.Truncate(time.Hour).UTC().Format(time.RFC3339)]
	if next == nil || len(next.After) != 1 || next.After[0] != made["newer"] {
		t.Errorf("the next slot of the one that queues is %+v, want it after %s", next, made["newer"])
	}
}

// An unreadable schedule state is kept for a person, and the schedule begins anew.
func TestAScheduleThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{"garbage": "\x00\x00", "a newer version": `{"version":2}`, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := prepare(t, secondly, testHandlers)
			must(t, os.WriteFile(filepath.Join(b.dir, "schedules", "test-tick.json"), []byte(data), 0o640))
			b.start()
			b.awaitStarted("tick", 1)
			found, err := filepath.Glob(filepath.Join(b.dir, "corrupt", "*_test-tick.json"))
			must(t, err)
			if len(found) != 1 {
				t.Fatalf("in corrupt/ are %q", found)
			}
			if kept, err := os.ReadFile(found[0]); err != nil || string(kept) != data {
				t.Errorf("kept is %q, %v", kept, err)
			}
			if reason, err := os.ReadFile(found[0] + ".reason"); err != nil ||
				!strings.Contains(string(reason), "schedules/test-tick.json") {
				t.Errorf("the reason is %q, %v", reason, err)
			}
		})
	}
}

const overlapping = `
{group: test, name: skips, schedule: {cron: "* * * * * *"}, handler: wait}
---
{group: test, name: cancels, schedule: {cron: "* * * * * *", overlap: cancel_previous}, handler: wait}
---
{group: test, name: queues, schedule: {cron: "* * * * * *", overlap: queue}, handler: wait}
---
{group: test, name: late, schedule: {cron: "* * * * * *", jitter: 24h, overlap: skip}, handler: wait}
`

// A slot that overlaps a live operation of an earlier slot is handled as the job says.
func TestOverlappingSlots(t *testing.T) {
	t.Parallel()
	b := setup(t, overlapping, testHandlers)
	b.awaitSchedule("skips", func(s api.Schedule) bool {
		return strings.HasPrefix(s.Skipped,
			"operation "+s.Operation+" is ")
	})
	if got := b.started("skips"); len(got) != 1 {
		t.Errorf("%d operations run beside each other", len(got))
	}
	queued := b.awaitStarted("queues", 2)
	waits := 0
	for _, rec := range queued {
		if len(rec.After) == 1 && rec.Require == statefs.RequireEnd {
			waits++
		}
	}
	if waits != len(queued)-1 {
		t.Errorf("%d of %d wait for another one", waits, len(queued))
	}
	cancelled := b.awaitStarted("cancels", 2)
	first := slices.Sorted(func(yield func(string) bool) {
		for slot := range cancelled {
			if !yield(slot) {
				return
			}
		}
	})[0]
	if rec := b.awaitEnd(cancelled[first].ID); rec.Status != statefs.Cancelled {
		t.Errorf("the first one is %s", rec.Status)
	}
	for slot, rec := range b.awaitStarted("late", 1) {
		at, err := time.Parse(time.RFC3339, slot)
		if delay := rec.NotBefore.Sub(at); err != nil || delay < 0 || delay > 24*time.Hour ||
			rec.Transitions[0].To != statefs.Scheduled {
			t.Errorf("slot %s begins at %s, %v", slot, rec.NotBefore, rec.Transitions)
		}
	}
}

// Three schedules on one timer for a day, with an hour without a daemon in the middle: each slot
// fires once, at its time, and missed slots fire as the job defines.
func TestSchedulesOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		type job struct {
			spec    *schedule.Spec
			missed  schedule.Missed
			handled schedule.Handled
			fired   []time.Time
			late    int
		}
		jobs := map[string]*job{}
		for name, c := range map[string]struct {
			line   string
			missed schedule.Missed
		}{
			"quarters": {"*/15 * * * *", schedule.MissedOnce}, "hours": {"0 * * * *", schedule.MissedAll},
			"nights": {"30 2 * * *", schedule.MissedSkip},
		} {
			spec, err := schedule.Parse(c.line, "")
			must(t, err)
			jobs[name] = &job{spec: spec, missed: c.missed, handled: schedule.Begin(began)}
		}
		run := func(until time.Duration) {
			var a *alarm.Alarms[string]
			a = alarm.New(time.Now, func() time.Duration { return time.Since(began) }, func(name string) {
				j, now := jobs[name], time.Now()
				var due []time.Time
				due, j.handled = j.handled.Due(j.spec, now, j.missed)
				for _, slot := range due {
					if !now.Equal(slot) {
						j.late++
					}
				}
				j.fired = append(j.fired, due...)
				a.Set(name, j.handled.Next(j.spec, now), 0)
			})
			for name := range jobs {
				a.Set(name, time.Now(), 0) // a start enqueues all of them
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { a.Serve(ctx, nil); close(done) }()
			<-time.After(time.Until(began.Add(until)))
			synctest.Wait()
			cancel()
			<-done
		}
		run(10*time.Hour + time.Minute)
		<-time.After(70 * time.Minute)
		run(24*time.Hour + time.Second)
		for name, want := range map[string]struct{ count, late int }{
			"quarters": {96 - 3, 1},
			"hours":    {24, 1}, "nights": {1, 0},
		} {
			j := jobs[name]
			if len(j.fired) != want.count || j.late != want.late || !slices.IsSortedFunc(j.fired, time.Time.Compare) ||
				len(slices.Compact(j.fired)) != want.count {
				t.Errorf("%s: fired %d times, %d late; want %d, %d", name, len(j.fired), j.late, want.count, want.late)
			}
		}
	})
}
