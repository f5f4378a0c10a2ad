package daemon

import (
	"errors"
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// endUnwantedCommands ends the commands in held that no operation needs: those of an earlier run,
// and those of an operation that has ended, was moved manually or is gone. It waits for their end,
// because the next run of the same operation is about to start.
func (d *Daemon) endUnwantedCommands(held map[statefs.ID][]keeper.HeldCommand) error {
	var unwanted []keeper.Running
	for id, held := range held {
		runs, err := d.wantedRuns(id)
		if err != nil {
			return err
		}
		for _, h := range held {
			if slices.Contains(runs, h.Key.Run) || slices.Contains(runs, anyRun) {
				continue
			}
			if p, ok := d.config.Keepers.Find(h.Key, ""); ok {
				unwanted = append(unwanted, p)
				d.logger.Info("ending a command of an earlier daemon: its run is over", "command", h.Key, "pid",
					h.PID, "ended", h.Ended)
			}
		}
	}
	work.EndCommands(unwanted...)
	return nil
}

// anyRun means all runs instead of the number of one.
const anyRun = -1

// wantedRuns returns the numbers of the runs whose commands must continue.
func (d *Daemon) wantedRuns(id statefs.ID) (runs []int, err error) {
	sight, err := d.owner.ObserveAll(id)
	if err != nil {
		return nil, err
	}
	rec, err := d.owner.ReadRecord(id)
	if errors.Is(err, statefs.ErrNewerVersion) || isTransient(err) {
		return []int{anyRun}, nil // the operation is left alone with its commands, or its reconcile tries again
	}
	if err != nil || rec.Status.Terminal() && !rec.Trailing || len(sight.States) == 0 {
		return nil, nil //nolint:nilerr // the reconcile reports the reason; without a record no command continues
	}
	state := sight.States[0]
	if len(sight.States) > 1 {
		state = d.owner.ChooseMarker(id, sight.States, rec)
	}
	for _, s := range rec.Steps {
		if s.Optional && s.Status == steps.Running {
			runs = append(runs, s.Run)
		}
	}
	if !rec.Trailing && mayHaveCommands(rec, statefs.InterpretMarker(rec, state)) {
		runs = append(runs, runNumber(rec))
	}
	return runs, nil
}

// runNumber returns the number of the current run: that of the current required step, or else of
// the operation.
func runNumber(rec *statefs.Record) int {
	if at := rec.CurrentStep(); at != nil {
		return at.Run
	}
	return rec.Run
}

// mayHaveCommands reports whether an operation in a state may have commands of its last run that
// must continue or whose end is not recorded yet. If the record has a due time, the run has ended
// and its outcome is recorded.
func mayHaveCommands(rec *statefs.Record, state statefs.State) bool {
	if at := rec.CurrentStep(); len(rec.Steps) > 0 && (at == nil || at.Status != steps.Running) {
		return false // it is between two steps
	}
	return rec.DueAt == nil && (state == statefs.Running || state == statefs.Paused)
}

// endHeldCommands ends the commands that keepers hold for an operation that ends now.
func (d *Daemon) endHeldCommands(id statefs.ID) {
	var commands []keeper.Running
	for _, h := range d.heldCommands[id] {
		if p, ok := d.config.Keepers.Find(h.Key, ""); ok {
			commands = append(commands, p)
		}
	}
	work.EndCommands(commands...)
}

// adoptWork continues a run of an earlier daemon if a keeper still holds its command or an exit
// report exists. It writes no line into the operation's log, because nothing has changed for its
// readers.
func (d *Daemon) adoptWork(op *operation) (goesOn bool, err error) {
	if d.config.Keepers == nil || op.rec.Starts == 0 {
		return false, nil
	}
	var commands []work.Command
	waits := false
	if mayHaveCommands(op.rec, op.state) {
		commands = d.workHost.Remaining(op.id(), d.heldCommands[op.id()], runNumber(op.rec), "")
		waits = d.waitsForKeeper(d.currentWork(op.rec))
	}
	if len(commands) == 0 && !waits {
		// An exit report found here belongs to a run that is over, or cannot be decoded.
		return false, statefs.RemoveExit(d.owner.Dir(), statefs.ExitName(op.id(), ""))
	}
	def, params, err := d.currentWork(op.rec)
	if err == nil && def.Work() == catalog.WorkHandler {
		err = errors.New("its job is a handler")
	}
	var r *work.Run
	if err == nil {
		_, err = d.openLogWriter(op, true)
	}
	if err == nil {
		r, err = d.newRun(op, def, params, true, func() {}) // it has begun already
	}
	if isTransient(err) {
		d.closeLog(op)
		return false, err // the command continues, and the next reconcile tries again
	}
	if err != nil {
		d.logger.Error("ending a command of an earlier daemon: its run cannot continue", "id", op.id(), "error", err)
		work.EndCommands(commands...)
		return false, nil
	}
	r.Adopt(commands, waits, op.state == statefs.Paused)
	d.logger.Info("work of an earlier daemon continues", "id", op.id(), "run", op.rec.Run, "commands", len(commands),
		"waits_for_keeper", waits)
	d.startRun(op, r)
	return true, nil
}
