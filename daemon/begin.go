package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/stream"
)

// starts begins runs: of an operation, and of its next step.
type starts struct {
	*core
	publisher *publisher
	ends      *ends

	workHost work.Host // what all runs share
	runs     sync.WaitGroup
	// fdBudget reserves the file descriptors that a start needs.
	fdBudget fdBudget
	// heldCommands lists the commands that the keepers held when this daemon started. It is set
	// only during recovery.
	heldCommands map[statefs.ID][]keeper.HeldCommand
	// awaitingKeepers is the set of operations found at startup, as long as a keeper that does not
	// answer may hold commands of theirs; otherwise nil.
	awaitingKeepers atomic.Pointer[map[statefs.ID]bool]
}

// startOperation starts the work of a queued operation.
//
// The order is: write the record with the run number and next: running, rename, sync, start the
// work. So after a crash, queued means that the work was not started, and running means that it may
// have been. The sync also makes the submission durable if its submitter still waits for that. The
// record of a handler's first run is written later, or with its end: see defersStartRecord.
func (s *starts) startOperation(op *operation) error {
	def, params, err := s.currentWork(op.rec)
	if isTransient(err) {
		return err
	}
	if err != nil {
		return s.failStart(op, err)
	}
	if s.config.Keepers != nil && def.Work() != catalog.WorkHandler {
		if err := s.checkSilentKeepers(op.rec); err != nil {
			return err
		}
		// Start the keeper before the run: a disk that is too full for the keeper's files is no
		// fault of the work.
		if err := s.config.Keepers.Prepare(context.Background()); err != nil {
			return fmt.Errorf("begin %s: %w", op.id(), err)
		}
	}
	// A command writes to the log directly, so the log exists before the marker is renamed to
	// running.
	s.closeLog(op)
	if _, err := s.openLog(op, def.Work() != catalog.WorkHandler || len(op.rec.Steps) > 0); err != nil {
		return err
	}
	if err := s.markRunning(op, defersStartRecord(op.rec, def)); err != nil {
		return err
	}
	if err := s.commit(op.id(), change{}, syncFiles); err != nil {
		return err
	}
	s.committed(op)
	id := op.id()
	return s.beginRun(op, def, params, func() { s.admission.releaseReservation(id) })
}

func (s *starts) startRun(op *operation, r *work.Run) {
	op.run = r
	r.Start(&s.runs)
}

func (s *starts) markRunning(op *operation, unsaid bool) error {
	rec := *op.rec
	now := s.owner.Now()
	if len(rec.Steps) == 0 || rec.StartedAt == nil { // a step has its own start time
		rec.StartedAt = &now
	}
	s.applyStart(&rec, now)
	s.Lanes.Started(laneOf(op.rec), now)
	if err := rec.Apply(op.state, statefs.CauseStart, now); err != nil {
		return err
	}
	writes := []write{moveMarker}
	if !unsaid {
		rec.Next = statefs.Running
		writes = []write{writeRecord, moveMarker}
	}
	row := statefs.Transition{From: op.state, Cause: statefs.CauseStart, To: statefs.Running}
	if err := s.commit(op.id(), change{rec: &rec, from: row.From, to: row.To}, writes...); err != nil {
		return err // if the marker was moved or removed, the run number is spent and no work was started
	}
	s.countTransition(op.id(), row, "run", rec.Run)
	op.rec = &rec
	s.setState(op, statefs.Running)
	if unsaid {
		s.deferStartRecord(op)
	}
	return nil
}

// applyStart updates a record for the start of a run: of its job, or of its current step.
func (s *starts) applyStart(rec *statefs.Record, now time.Time) {
	rec.Run++
	rec.Starts++
	rec.LaneTurn = s.Lanes.NextTurn(laneOf(rec))
	here := machine.This()
	rec.Host, rec.Boot, rec.PID = here.Host, here.Boot, os.Getpid()
	rec.StalledAt, rec.Error, rec.ExitCode, rec.Signal = nil, nil, nil, ""
	if len(rec.Steps) > 0 {
		s.applyStepStart(rec, now)
	}
}

// newRun prepares the work of a step without starting it; "" means a job without steps. adopted is set for a run
// that an earlier daemon started. begun is called when the work has all the files that it needs.
func (s *starts) newRun(op *operation, def *catalog.Definition, params catalog.Params, step string,
	log *stream.Writer, adopted bool, begun func(),
) (*work.Run, error) {
	job, id := def, op.id()
	if step != "" {
		var err error
		if job, err = s.storedDefinition(op.rec); err != nil {
			return nil, err
		}
	}
	return s.workHost.New(work.Spec{
		Record: op.rec, Job: job, Def: def, Params: params, Step: step, Log: log, Adopted: adopted,
		Handlers: s.config.Handlers, LaneEnv: s.Lanes.Environ(laneOf(op.rec), op.rec.LaneTurn),
		Begun: begun, Changed: func() { s.reconcileQueue.enqueueNames(id, noNames) }, // only the work changed
		Progressed: s.publisher.progressPublisher(op.rec),
	})
}

// startRecordDelay is how long the first run of a handler lasts before its start is written into
// the record. Most shorter runs save that write: the record of their end contains the start.
const startRecordDelay = 100 * time.Millisecond

// deferStartRecord reconciles an operation after startRecordDelay, if it is live then.
func (s *starts) deferStartRecord(op *operation) {
	op.unrecordedStart = time.Now()
	id := op.id()
	time.AfterFunc(startRecordDelay, func() {
		if s.manages(id) {
			s.reconcileQueue.enqueueNames(id, noNames)
		}
	})
}

// defersStartRecord reports whether an operation starts without a change to its record. The marker
// alone then tells that the first run of a handler has started. A restart needs no more, since the
// work of a handler ends with its daemon. A command may outlive the daemon and is found by its run
// number, so its start is always recorded first.
func defersStartRecord(rec *statefs.Record, def *catalog.Definition) bool {
	return def.Work() == catalog.WorkHandler && len(rec.Steps) == 0 && statefs.StartUnrecorded(rec, statefs.Running)
}

// recordStart durably writes the start of the run into the record. After the next rename of the
// marker, only the record tells that the run has started.
func (s *starts) recordStart(op *operation) error {
	if op.unrecordedStart.IsZero() {
		return nil
	}
	op.copyProgress()
	if err := s.commitRecord(op, op.rec); err != nil {
		return err
	}
	op.unrecordedStart = time.Time{}
	return nil
}

// recordStartIfDue records the start before anything but the end of the run happens to the
// operation, and at the latest after startRecordDelay. A full disk does not prevent control of the
// operation; the write is deferred again.
func (s *starts) recordStartIfDue(op *operation, sight statefs.Observation) error {
	quiet := len(sight.Requests)+len(op.pendingRequests)+len(op.awaiting) == 0 &&
		!op.unsaved && op.hasOnlyMarker(sight)
	if quiet && time.Since(op.unrecordedStart) < startRecordDelay {
		return nil
	}
	err := s.recordStart(op)
	if files.DiskFull(err) {
		s.deferStartRecord(op)
		return nil
	}
	return err
}

// recoverStart durably records the first run of a handler that an earlier daemon started and only
// the marker tells of. It does so before the marker moves on.
func (s *starts) recoverStart(rec *statefs.Record, marker statefs.State) error {
	if !statefs.StartUnrecorded(rec, marker) {
		return nil
	}
	def, err := s.storedDefinition(rec)
	if err != nil || !defersStartRecord(rec, def) {
		return nil //nolint:nilerr // a job that cannot be read is reported when the operation starts
	}
	at, err := s.owner.MarkerMovedAt(rec.ID, marker)
	if err != nil {
		return errMoved
	}
	if err := rec.RecordStart(at); err != nil {
		return err
	}
	if err := s.commit(rec.ID, change{rec: rec}, writeRecord); files.DiskFull(err) {
		return nil // a full disk does not prevent the start
	} else if err != nil {
		return err
	}
	return s.commit(rec.ID, change{}, syncFiles)
}

// A stopped keeper is alive and does not answer, and its commands continue. A daemon that starts
// serves all the same: an operation that was running or paused keeps that state until the keeper
// answers or dies, and an operation that ran before and is to run again waits for that too.

// errKeeperSilent means that an operation cannot begin because a command of one of its earlier runs
// may still be running.
var errKeeperSilent = errors.New("a keeper does not answer, and may have a command of an earlier run: continue it (kill -CONT) or kill it")

// keepersSettled reports whether all keepers that existed at the start have answered or died.
func (s *starts) keepersSettled() bool {
	return s.config.Keepers == nil || isClosed(s.config.Keepers.Settled())
}

// waitsForKeeper reports whether a keeper that does not answer may hold commands of this work.
func (s *starts) waitsForKeeper(def *catalog.Definition, _ catalog.Params, err error) bool {
	return !s.keepersSettled() && err == nil && def.Work() != catalog.WorkHandler
}

// awaitKeepers waits until all keepers have answered or died. Then it ends the commands that belong
// to no operation, and allows the operations that existed at the start to begin. It also returns
// when ctx ends.
func (rv *recovery) awaitKeepers(ctx context.Context) {
	if rv.starts.awaitingKeepers.Load() == nil {
		return
	}
	select {
	case <-rv.config.Keepers.Settled():
	case <-ctx.Done():
		return
	}
	if err := rv.endUnwantedCommands(rv.starts.workHost.HeldCommands()); err != nil {
		rv.fail(err)
		return
	}
	rv.starts.awaitingKeepers.Store(nil)
}

// checkSilentKeepers returns an error if a keeper that does not answer may hold a command of an
// operation that is about to begin again.
func (s *starts) checkSilentKeepers(rec *statefs.Record) error {
	if present := s.awaitingKeepers.Load(); present != nil && rec.Starts > 0 && (*present)[rec.ID] {
		return fmt.Errorf("begin %s: %w", rec.ID, errKeeperSilent)
	}
	return nil
}

// recordInterruption moves an operation whose marker is running, while it has no work, back to queued.
func (s *starts) recordInterruption(op *operation) error {
	cutOffStep(op.rec, s.owner.Now())
	return s.transitionDurably(op, statefs.CauseInterrupted)
}
