package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/schedule"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// scheduler starts jobs by their schedules. One goroutine reads the schedules of the catalog, is woken by alarms, and submits; what was dealt
// with stands in schedules/, so that each slot fires once.
//
// The order is: write down which slots are being fired, submit each under an idempotency key that is made of job and slot, cancel the operation
// before it where the job says so, and write down that the slots were dealt with. The daemon after a crash in between goes on with what is
// written down, whatever became due since: what was submitted it finds by its key, so that the next slot stands behind that.
type scheduler struct {
	d      *Daemon
	intake *submit.Intake
	wake   chan struct{}

	odd    oddFiles
	mu     sync.Mutex // guards jobs and wanted
	jobs   map[string]*scheduled
	wanted map[string]bool
}

// scheduled is the schedule of one job, by its endpoint name. Only the goroutine of the scheduler changes it, with the lock.
type scheduled struct {
	def  *catalog.Definition
	kept keptSchedule
}

// keptSchedule is schedules/ENDPOINT.json.
type keptSchedule struct {
	Version  int    `json:"version"`
	Job      string `json:"job"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	// Handled is the nominal time whose slots were dealt with.
	Handled schedule.Handled `json:"handled"`
	// Firing is what is being fired, nil in between.
	Firing *firing `json:"firing,omitempty"`
	// Slot is the last of them, Operation what the schedule started last, and Skipped why Slot started nothing.
	Slot      *time.Time `json:"slot,omitempty"`
	Operation string     `json:"operation,omitempty"`
	Skipped   string     `json:"skipped,omitempty"`
}

const scheduleVersion = 1

func newScheduler(d *Daemon) *scheduler {
	s := &scheduler{d: d, intake: d.config.Intake, wake: make(chan struct{}, 1), jobs: make(map[string]*scheduled), wanted: make(map[string]bool)}
	if s.intake == nil {
		s.intake = submit.NewIntake(submit.Config{Tree: d.owner.Tree})
		s.intake.Ready()
	}
	return s
}

// want has the schedule of a job looked at. It never blocks.
func (s *scheduler) want(endpoint string) {
	s.mu.Lock()
	s.wanted[endpoint] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// oddSchedules is no endpoint: it wants a look at what stands in schedules/.
const oddSchedules = ""

// wantAll has all schedules looked at: a clock that was set may have slots to come that seemed to be past.
func (s *scheduler) wantAll() {
	s.mu.Lock()
	for endpoint := range s.jobs {
		s.wanted[endpoint] = true
	}
	s.wanted[oddSchedules] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run starts jobs by their schedules until ctx ends, once the daemon is ready.
func (s *scheduler) run(ctx context.Context) {
	select {
	case <-s.d.ready:
	case <-ctx.Done():
		return
	}
	for {
		changed := s.d.config.Catalog.Changed()
		s.read()
		s.findOdd()
		if !s.attend(ctx, changed) {
			return
		}
	}
}

// attend looks at schedules when their alarms come, until the jobs have changed. It returns false when ctx has ended.
func (s *scheduler) attend(ctx context.Context, changed <-chan struct{}) bool {
	for {
		s.mu.Lock()
		wanted := s.wanted
		s.wanted = make(map[string]bool)
		s.mu.Unlock()
		for endpoint := range wanted {
			if endpoint == oddSchedules {
				s.findOdd()
				continue
			}
			s.look(ctx, endpoint)
		}
		select {
		case <-s.wake:
		case <-changed:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// read takes over the schedules of the jobs as they are now.
func (s *scheduler) read() {
	there := make(map[string]bool)
	for _, def := range s.d.config.Catalog.All() {
		if def.Schedule == nil {
			continue
		}
		endpoint := def.Endpoint()
		there[endpoint] = true
		s.mu.Lock()
		known := s.jobs[endpoint]
		s.mu.Unlock()
		if known != nil && known.def == def {
			continue
		}
		kept, err := s.recall(def)
		if err != nil {
			s.d.logger.Error("schedule not taken over; it is tried again at the next change of the jobs", "job", def.Address(), "error", err)
			continue
		}
		s.mu.Lock()
		s.jobs[endpoint] = &scheduled{def: def, kept: kept}
		s.mu.Unlock()
		s.want(endpoint)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for endpoint := range s.jobs {
		if !there[endpoint] {
			delete(s.jobs, endpoint)
			s.d.alarms.set(alarmKey{schedule: endpoint}, time.Time{}, 0)
		}
	}
}

// recall reads what was dealt with of a schedule. One that is new, or means other times than before, begins now.
func (s *scheduler) recall(def *catalog.Definition) (keptSchedule, error) {
	spec := def.Schedule.Spec
	fresh := keptSchedule{
		Version: scheduleVersion, Job: def.Address(), Cron: spec.Cron(), Timezone: spec.Timezone(), Handled: schedule.Begin(s.d.owner.Now().Round(0)),
	}
	data, err := s.d.owner.ReadSchedule(def.Endpoint())
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, s.keep(def, fresh)
	}
	if err != nil {
		return fresh, err
	}
	kept, err := readKept(data)
	if err != nil {
		s.d.logger.Error("what was known of a schedule cannot be read; its file is in corrupt/, it begins anew, and slots of before do not fire",
			"job", def.Address(), "file", "schedules/"+def.Endpoint()+".json", "error", err)
		if err := s.d.owner.QuarantineSchedule(def.Endpoint(), err.Error()); err != nil {
			return fresh, err
		}
		return fresh, s.keep(def, fresh)
	}
	if kept.Job != fresh.Job || kept.Cron != fresh.Cron || kept.Timezone != fresh.Timezone || len(kept.Handled) == 0 {
		fresh.Operation = kept.Operation // which may still be under way
		if kept.Firing != nil && kept.Job == fresh.Job {
			fresh.Firing = &firing{At: kept.Firing.At, Slots: kept.Firing.Slots, Overlap: kept.Firing.Overlap}
		}
		return fresh, s.keep(def, fresh)
	}
	return kept, nil
}

func readKept(data []byte) (kept keptSchedule, err error) {
	if err := json.Unmarshal(data, &kept); err != nil {
		return kept, err
	}
	if kept.Version != scheduleVersion {
		return kept, fmt.Errorf("version %d is not known", kept.Version)
	}
	return kept, nil
}

// keep writes down what was dealt with.
func (s *scheduler) keep(def *catalog.Definition, kept keptSchedule) error {
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return s.d.owner.WriteSchedule(def.Endpoint(), data)
}

// look fires what is due of a schedule, and sets the alarm for the next slot.
func (s *scheduler) look(ctx context.Context, endpoint string) {
	s.mu.Lock()
	job := s.jobs[endpoint]
	s.mu.Unlock()
	if job == nil || s.d.draining() || s.d.stopping.Load() {
		return // what is due now is for the next daemon
	}
	key := alarmKey{schedule: endpoint}
	next, err := s.fire(ctx, job)
	if err != nil {
		s.d.schedulerFailed(job.def.Address(), err)
		s.d.alarms.set(key, time.Time{}, s.d.ran()+scheduleAgain)
		return
	}
	s.d.alarms.set(key, next, 0)
}

// scheduleAgain is after what time a slot is tried again that could not be fired.
const scheduleAgain = 5 * time.Second

// schedulerFailed reports that a slot could not be fired; a disk that fails ends the daemon.
func (d *Daemon) schedulerFailed(job string, err error) {
	if _, unsynced := errors.AsType[*statefs.SyncError](err); unsynced || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) {
		d.fail(err)
		return
	}
	d.logger.Error("a scheduled start failed and is tried again", "job", job, "again_in", scheduleAgain, "error", err)
}

// fire submits what is due of a schedule, or was being fired when something failed, and returns the next slot.
func (s *scheduler) fire(ctx context.Context, job *scheduled) (next time.Time, err error) {
	if job.kept.Firing != nil {
		if err := s.resume(ctx, job); err != nil {
			return next, err
		}
	}
	sch, now, kept := job.def.Schedule, s.d.owner.Now().Round(0), job.kept
	slots, handled := kept.Handled.Due(sch.Spec, now, sch.Missed)
	enabled, err := s.d.owner.ScheduleEnabled(job.def.Endpoint())
	if err != nil {
		return next, err
	}
	switch {
	case len(slots) > 0 && enabled:
		kept.Firing = &firing{now, slots, sch.OverlapOf(slots, now), handled}
		if err := s.note(job, kept); err != nil {
			return next, err
		}
		return handled.Next(sch.Spec, now), s.fireSlots(ctx, job)
	case len(slots) > 0:
		kept.Slot, kept.Skipped = &slots[len(slots)-1], "the schedule is off"
	case len(handled) == len(kept.Handled):
		return handled.Next(sch.Spec, now), nil
	}
	kept.Handled = handled
	return handled.Next(sch.Spec, now), s.note(job, kept)
}

// note writes down what is known of the schedule of a job, and takes it over.
func (s *scheduler) note(job *scheduled, kept keptSchedule) error {
	if err := s.keep(job.def, kept); err != nil {
		return err
	}
	s.mu.Lock()
	job.kept = kept
	s.mu.Unlock()
	return nil
}

// Schedules returns the schedules of all jobs, by their names.
func (d *Daemon) Schedules() ([]schedule.Status, error) {
	var all []schedule.Status
	for _, def := range d.config.Catalog.All() {
		if def.Schedule == nil {
			continue
		}
		sch := def.Schedule
		enabled, err := d.owner.ScheduleEnabled(def.Endpoint())
		if err != nil {
			return nil, err
		}
		status := schedule.Status{
			Job: def.Address(), Cron: sch.Spec.Cron(), Timezone: zoneName(sch.Spec.Timezone()), Jitter: sch.Jitter.Seconds(),
			Overlap: sch.Overlap, Missed: sch.Missed, Enabled: enabled,
		}
		d.scheduler.mu.Lock()
		job := d.scheduler.jobs[def.Endpoint()]
		var kept keptSchedule
		if job != nil {
			kept = job.kept
		}
		d.scheduler.mu.Unlock()
		status.Last, status.Operation, status.Skipped = kept.Slot, kept.Operation, kept.Skipped
		if next := kept.Handled.Next(sch.Spec, d.owner.Now()); enabled && !next.IsZero() {
			status.Next = &next
		}
		all = append(all, status)
	}
	return all, nil
}

func zoneName(name string) string {
	if name == "" {
		return "UTC"
	}
	return name
}
