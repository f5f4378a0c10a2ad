package trigger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/daemon/alarm"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/notify"
)

// scheduler starts jobs by their schedules. One goroutine reads the schedules of the catalog, is
// woken by alarms, and submits. Settled slots are recorded in schedules/, so that each slot fires
// once.
//
// The order is: record the slots that are being fired, submit each under an idempotency key made of
// the job and the slot, cancel the previous operation if the job wants that, and record the slots as
// handled. After a crash in between, the next daemon finishes the recorded firing before it computes
// new slots. It finds submitted operations by their key, so the next slot knows its predecessor.
type scheduler struct {
	config *Config
	alarms *alarm.Alarms[struct{}] // one, for the next slot of all schedules
	wake   chan struct{}

	strayFiles strayFileLog
	mu         sync.Mutex            // guards jobs
	jobs       map[string]*scheduled // by endpoint name
}

// scheduled is the schedule of one job. Only the goroutine of the scheduler changes it, under the
// lock.
type scheduled struct {
	def   *catalog.Definition
	state scheduleState
}

// scheduleState is the content of schedules/ENDPOINT.json.
type scheduleState struct {
	Version  int    `json:"version"`
	Job      string `json:"job"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	// Handled is the nominal time whose slots are settled.
	Handled schedule.Handled `json:"handled"`
	// Firing holds the slots that are being fired, nil if there are none.
	Firing *firing `json:"firing,omitempty"`
	// Slot is the last settled slot, Operation the last started operation, and Skipped why Slot
	// started none.
	Slot      *time.Time `json:"slot,omitempty"`
	Operation string     `json:"operation,omitempty"`
	Skipped   string     `json:"skipped,omitempty"`
}

const scheduleVersion = 1

func newScheduler(c *Config) *scheduler {
	s := &scheduler{config: c, wake: make(chan struct{}, 1), jobs: make(map[string]*scheduled)}
	s.alarms = alarm.New(c.Owner.Now, c.Uptime, func(struct{}) { s.reconcileSoon() })
	s.alarms.OnClockSet = s.reconcileSoon // past slots may lie in the future again
	return s
}

// reconcileSoon requests a reconcile. It never blocks.
func (s *scheduler) reconcileSoon() { notify.Wake(s.wake) }

// run starts jobs by their schedules until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	changed := s.config.Catalog.Changed()
	s.loadSchedules()
	for {
		s.logStrayFiles()
		s.reconcile(ctx)
		select {
		case <-s.wake:
		case <-changed:
			changed = s.config.Catalog.Changed()
			s.loadSchedules()
		case <-ctx.Done():
			return
		}
	}
}

// loadSchedules loads the schedules of the current jobs.
func (s *scheduler) loadSchedules() {
	there := make(map[string]bool)
	for _, def := range s.config.Catalog.All() {
		if def.Schedule == nil {
			continue
		}
		endpoint := def.Endpoint()
		there[endpoint] = true
		if known := s.jobs[endpoint]; known != nil && known.def == def { // only this goroutine changes jobs
			continue
		}
		kept, err := s.loadState(def)
		if err != nil {
			s.config.Logger.Error("schedule not loaded, retrying at the next change of the jobs", "job",
				def.Address(), "error", err)
			continue
		}
		s.mu.Lock()
		s.jobs[endpoint] = &scheduled{def: def, state: kept}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.jobs, func(endpoint string, _ *scheduled) bool { return !there[endpoint] })
}

// loadState reads the state of a schedule. A schedule that is new, or whose job, expression or time
// zone has changed, begins now.
func (s *scheduler) loadState(def *catalog.Definition) (scheduleState, error) {
	spec := def.Schedule.Spec
	fresh := scheduleState{
		Version: scheduleVersion, Job: def.Address(), Cron: spec.Cron(), Timezone: spec.Timezone(),
		Handled: schedule.Begin(s.config.Owner.Now().Round(0)),
	}
	data, err := s.config.Owner.Schedules.Read(def.Endpoint())
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, s.writeState(def, fresh)
	}
	var kept scheduleState
	if err == nil {
		err = json.Unmarshal(data, &kept)
	} else if !errors.Is(err, files.ErrIrregular) {
		return fresh, err
	}
	if err == nil && kept.Version != scheduleVersion {
		err = fmt.Errorf("version %d is not known", kept.Version)
	}
	if err != nil {
		s.config.Logger.Error("state of a schedule unreadable: its file is in corrupt/, the schedule begins anew, and earlier slots do not fire",
			"job", def.Address(), "file", "schedules/"+def.Endpoint()+".json", "error", err)
		if err := s.config.Owner.Schedules.Quarantine(def.Endpoint(), err.Error()); err != nil {
			return fresh, err
		}
		return fresh, s.writeState(def, fresh)
	}
	if kept.Job != fresh.Job || kept.Cron != fresh.Cron || kept.Timezone != fresh.Timezone || len(kept.Handled) == 0 {
		fresh.Operation = kept.Operation // which may still be under way
		if kept.Firing != nil && kept.Job == fresh.Job {
			fresh.Firing = &firing{At: kept.Firing.At, Slots: kept.Firing.Slots, Overlap: kept.Firing.Overlap}
		}
		return fresh, s.writeState(def, fresh)
	}
	return kept, nil
}

// writeState writes the state of a schedule to its file.
func (s *scheduler) writeState(def *catalog.Definition, kept scheduleState) error {
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return s.config.Owner.Schedules.Write(def.Endpoint(), data)
}

// reconcile fires the due slots of all schedules, and sets the alarm for the next one. A schedule that is not due costs
// one search for the file that disables it.
func (s *scheduler) reconcile(ctx context.Context) {
	var next time.Time
	var retry time.Duration
	for _, job := range s.jobs { // only this goroutine changes jobs
		if s.config.Stopping() {
			return // what is due now is for the next daemon
		}
		at, err := s.fire(ctx, job)
		if err != nil {
			s.failed(job.def.Address(), err)
			retry = s.config.Uptime() + scheduleRetryInterval
		} else if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	s.alarms.Set(struct{}{}, next, retry)
}

// scheduleRetryInterval is the delay before a slot that could not be fired is retried.
const scheduleRetryInterval = 5 * time.Second

// failed reports that a slot could not be fired; a failing disk ends the daemon.
func (s *scheduler) failed(job string, err error) {
	if _, unsynced := errors.AsType[*files.SyncError](err); unsynced || errors.Is(err, syscall.EIO) ||
		errors.Is(err, syscall.EROFS) {
		s.config.Fail(err)
		return
	}
	s.config.Logger.Error("scheduled start failed, retrying", "job", job, "again_in",
		scheduleRetryInterval, "error", err)
}

// fire finishes an interrupted firing, submits the due slots of a schedule, and returns the next
// slot.
func (s *scheduler) fire(ctx context.Context, job *scheduled) (next time.Time, err error) {
	if job.state.Firing != nil {
		if err := s.resume(ctx, job); err != nil {
			return next, err
		}
	}
	sch, now, kept := job.def.Schedule, s.config.Owner.Now().Round(0), job.state
	slots, handled := kept.Handled.Due(sch.Spec, now, sch.Missed)
	enabled, err := s.config.Owner.Schedules.Enabled(job.def.Endpoint())
	if err != nil {
		return next, err
	}
	switch {
	case len(slots) > 0 && enabled:
		kept.Firing = &firing{now, slots, sch.OverlapOf(slots, now), handled}
		if err := s.setState(job, kept); err != nil {
			return next, err
		}
		return handled.Next(sch.Spec, now), s.fireSlots(ctx, job)
	case len(slots) > 0:
		kept.Slot, kept.Skipped = &slots[len(slots)-1], "the schedule is off"
	case len(handled) == len(kept.Handled):
		return handled.Next(sch.Spec, now), nil
	}
	kept.Handled = handled
	return handled.Next(sch.Spec, now), s.setState(job, kept)
}

// setState writes the state of a schedule to its file and then takes it over.
func (s *scheduler) setState(job *scheduled, kept scheduleState) error {
	if err := s.writeState(job.def, kept); err != nil {
		return err
	}
	s.mu.Lock()
	job.state = kept
	s.mu.Unlock()
	return nil
}

// Schedules returns the schedules of all jobs, in the order of the catalog.
func (t *Trigger) Schedules() ([]api.Schedule, error) {
	s := t.scheduler
	var all []api.Schedule
	for _, def := range s.config.Catalog.All() {
		if def.Schedule == nil {
			continue
		}
		sch := def.Schedule
		enabled, err := s.config.Owner.Schedules.Enabled(def.Endpoint())
		if err != nil {
			return nil, err
		}
		status := api.Schedule{
			Job: def.Address(), Cron: sch.Spec.Cron(), Timezone: cmp.Or(sch.Spec.Timezone(), "UTC"), Jitter: sch.Jitter.Seconds(),
			Overlap: string(sch.Overlap), Missed: string(sch.Missed), Enabled: enabled,
		}
		s.mu.Lock()
		job := s.jobs[def.Endpoint()]
		var kept scheduleState
		if job != nil {
			kept = job.state
		}
		s.mu.Unlock()
		status.Last, status.Operation, status.Skipped = kept.Slot, kept.Operation, kept.Skipped
		if next := kept.Handled.Next(sch.Spec, s.config.Owner.Now()); enabled && !next.IsZero() {
			status.Next = &next
		}
		all = append(all, status)
	}
	return all, nil
}
