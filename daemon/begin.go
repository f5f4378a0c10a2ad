package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/statefs/steps"
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

// fdBudget counts the runs that are starting and do not have all their descriptors yet. Each of
// them reserves descriptors, so that many concurrent starts leave enough for running work.
type fdBudget struct{ pending atomic.Int64 }

// reserve reserves the descriptors of a run, until done is called for the first time. The error, which is that of
// room, reports why there are too few.
func (b *fdBudget) reserve(room func(runs int) error) (done func(), err error) {
	if err := room(int(b.pending.Add(1))); err != nil {
		b.pending.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { b.pending.Add(-1) }), nil
}

// isDue reports whether the time has come for which an operation waits. A time of day has come when
// the clock shows it. The wait between two attempts also ends if the clock was set back.
func (s *starts) isDue(op *operation) bool {
	t := s.deadlinesOf(op)
	due := op.rec.DueAt
	return due == nil || !due.After(s.owner.Now()) || t.attempt > 0 && t.attempt <= s.uptime()
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
	if err := s.markRunning(op, !s.owner.Journal.InUse() && defersStartRecord(op.rec, def)); err != nil {
		return err
	}
	if err := s.commit(op.id(), change{}, syncFiles); err != nil {
		s.publishRecord(op)
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

// submits is the listener for submits, which may start an operation.
type submits struct {
	submitListener
	starts *starts
}

// Start implements statefs.SubmitListener. Only the plain case starts with its submit: a handler in a job without
// steps that waits for nothing. Of any other operation a reconcile decides by its files.
func (l submits) Start(rec *statefs.Record) {
	c := l.core
	_, unsettled := c.unsettledIDs.get(rec.ID)
	if !c.isReady() || rec.Status != statefs.Queued || rec.Key != "" || len(rec.After)+len(rec.Steps) > 0 ||
		unsettled || c.reconcileQueue.has(rec.ID) { // there may be a request already
		return
	}
	def, params, err := c.currentWork(rec)
	if err != nil || def.Work() != catalog.WorkHandler ||
		!c.admission.tryStartSubmit(itemOfRecord(rec), submittedStart{def: def, params: params}) {
		return
	}
	started := *rec
	if c.draining() || l.starts.noteStart(&started) != nil { // Drain waits for the starts that are pending when it begins
		c.admission.dropSubmitted(rec.ID)
		c.admission.admit()
		return
	}
	*rec = started
}

// beginSubmitted begins the work of an operation that started with its submit, and reports whether it was one.
func (s *starts) beginSubmitted(op *operation) (begun bool, err error) {
	id := op.id()
	w, is := s.admission.submitted.get(id)
	if s.admission.submitted.take(id); !is || op.state != statefs.Running { // a person has moved the marker
		return false, nil
	}
	s.countTransition(id, statefs.Transition{From: statefs.Queued, Cause: statefs.CauseStart, To: statefs.Running},
		"run", op.rec.Run)
	if _, err := s.openLog(op, false); err != nil {
		return true, err
	}
	return true, s.beginRun(op, w.def, w.params, func() { s.admission.releaseReservation(id) })
}

// noteStart updates the record of a queued operation for the start of a run.
func (s *starts) noteStart(rec *statefs.Record) error {
	now, lane := s.owner.Now(), laneOf(rec)
	if len(rec.Steps) == 0 || rec.StartedAt == nil { // a step has its own start time
		rec.StartedAt = &now
	}
	s.applyStart(rec, now)
	s.Lanes.Started(lane, now)
	return rec.Apply(statefs.Queued, statefs.CauseStart, now)
}

func (s *starts) markRunning(op *operation, deferred bool) error {
	rec := *op.rec
	if err := s.noteStart(&rec); err != nil {
		return err
	}
	writes := []write{moveMarker}
	if !deferred {
		if !s.owner.Journal.InUse() {
			rec.Next = statefs.Running
		}
		writes = []write{writeRecord, moveMarker}
	}
	row := statefs.Transition{From: op.state, Cause: statefs.CauseStart, To: statefs.Running}
	if err := s.commit(op.id(), change{rec: &rec, from: row.From, to: row.To}, writes...); err != nil {
		return s.takeBack(op.rec, err) // the run number is spent, and no work was started
	}
	s.countTransition(op.id(), row, "run", rec.Run)
	op.rec = &rec
	op.enter(statefs.Running)
	if deferred {
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
	rec.Host, rec.Boot, rec.PID = here.Host, here.Boot, machine.PID
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

// finishRun writes the record of an operation whose run is over, and removes the files of the run.
// Until that is done, op.finishedRun holds the run.
func (s *starts) finishRun(op *operation) error {
	if op.run != nil {
		op.run, op.endCause, op.finishedRun = nil, "", op.run
	}
	if err := s.persist(op); err != nil {
		return err
	}
	r := op.finishedRun
	op.finishedRun = nil
	s.closeLog(op)
	if op.state == statefs.Queued {
		s.reconcileQueue.enqueue(op.id())
	}
	return r.Forget()
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
// number, so its start is always recorded first. So is any start in the journal, where it costs no write of its own.
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
// operation; the write is retried.
func (s *starts) recordStartIfDue(op *operation, sight statefs.Observation) error {
	quiet := len(sight.Requests)+len(op.pendingRequests)+len(op.awaiting) == 0 &&
		!op.unsaved && op.hasOnlyMarker(sight)
	if quiet && time.Since(op.unrecordedStart) < startRecordDelay {
		return nil
	}
	err := s.recordStart(op)
	if files.DiskFull(err) {
		s.reconcileQueue.enqueueAfter(op.id(), retryInterval)
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
	return s.config.Keepers == nil || notify.IsClosed(s.config.Keepers.Settled())
}

// waitsForKeeper reports whether a keeper that does not answer may hold commands of this work.
func (s *starts) waitsForKeeper(def *catalog.Definition, _ catalog.Params, err error) bool {
	return !s.keepersSettled() && err == nil && def.Work() != catalog.WorkHandler
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

const cutOffText = "the work was cut off because the daemon or the machine stopped"

// cutOffMessage returns the error message of work that was cut off before this daemon began: text,
// and the last non-empty line of the command if there is one. at is its step, nil for none.
func (s *starts) cutOffMessage(id statefs.ID, def *catalog.Definition, at *steps.Step, text string) string {
	if def == nil || def.Work() != catalog.WorkRun {
		return text
	}
	path, from := s.owner.LogPath(id), int64(0)
	if at != nil {
		from = at.LogFrom
		if at.Log != "" {
			path = s.owner.StepLogPath(id, at.Name)
		}
	}
	return withLine(text, s.workHost.LastLine(id, path, from))
}

// reasonDependency is the reason of an operation that waits for a person because a parent has not
// succeeded.
const reasonDependency = "dependency"

// readEnd returns the record of an operation that has ended, or nil if it is live. For a record
// that is missing or cannot be read it returns a substitute with the reason.
func (s *starts) readEnd(id statefs.ID) (*statefs.Record, error) {
	if state, err := s.owner.State(id); state != statefs.Trailing && !errors.Is(err, statefs.ErrNotLive) {
		return nil, err // checked before the record: if the marker is gone, the record is terminal
	}
	rec, err := s.owner.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return &statefs.Record{ID: id, Status: statefs.Cancelled, Reason: "its record was removed"}, nil
	}
	if corrupt, ok := errors.AsType[*statefs.CorruptError](err); ok || errors.Is(err, statefs.ErrNewerVersion) {
		reason := "its record is of a newer version"
		if ok {
			reason = "its record cannot be read: " + corrupt.Error()
		}
		return &statefs.Record{ID: id, Status: statefs.Failed, Reason: reason}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how operation %s ended: %w", id, err)
	}
	if !rec.Status.Terminal() {
		return nil, nil // its marker was removed manually, and its end is not recorded yet
	}
	return rec, nil
}

// parentFailed leaves an operation to a person because a parent has not succeeded.
func (s *starts) parentFailed(op *operation, x seen, answer decide.Answer) error {
	parent := x.parent
	s.setAwaited(op, nil)
	what := string(parent.Status)
	if parent.Reason != "" {
		what += ", " + parent.Reason
	}
	message := fmt.Sprintf("operation %s, which it comes after, has not succeeded (%s)", parent.ID, what)
	if op.rec.Reason != reasonDependency { // on a full disk this code runs again
		s.logLine(op, fmt.Sprintf("  ERROR: %s. 'jobdir retry %s' starts it all the same, 'jobdir cancel' ends it.", message,
			op.id()))
	}
	op.rec.Reason, op.rec.Error = reasonDependency, &statefs.Fault{Code: "dependency", Message: message}
	return s.transitionDurably(op, answer.Cause)
}
