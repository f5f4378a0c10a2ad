package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// listHeldCommands returns the commands that living keepers hold, by operation.
func (d *Daemon) listHeldCommands() map[statefs.ID][]keeper.HeldCommand {
	held := make(map[statefs.ID][]keeper.HeldCommand)
	if d.config.Keepers == nil {
		return held
	}
	for _, h := range d.config.Keepers.Commands() {
		id, err := statefs.ParseID(h.Key.Operation)
		if err != nil {
			continue // the key belongs to another program
		}
		held[id] = append(held[id], h)
	}
	return held
}

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
				d.logger.Info("a command of an earlier daemon is of no use any more", "command", h.Key, "pid",
					h.PID, "ended", h.Ended)
			}
		}
	}
	endCommands(unwanted)
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

func endCommands(commands []keeper.Running) {
	for _, p := range commands {
		p.End(causeInterrupted)
	}
	for _, p := range commands {
		<-p.Done()
		p.Acknowledge()
	}
}

// endHeldCommands ends the commands that keepers hold for an operation that ends now.
func (d *Daemon) endHeldCommands(id statefs.ID) {
	var commands []keeper.Running
	for _, h := range d.heldCommands[id] {
		if p, ok := d.config.Keepers.Find(h.Key, ""); ok {
			commands = append(commands, p)
		}
	}
	endCommands(commands)
}

// adoptWork continues a run of an earlier daemon if a keeper still holds its command or an exit
// report exists. It writes no line into the operation's log, because nothing has changed for its
// readers.
func (d *Daemon) adoptWork(op *operation) (goesOn bool, err error) {
	if d.config.Keepers == nil || op.rec.Starts == 0 {
		return false, nil
	}
	var commands []adoptedCommand
	waits := false
	if mayHaveCommands(op.rec, op.state) {
		commands = d.remainingCommands(op.id(), d.heldCommands[op.id()], runNumber(op.rec), "")
		waits = d.waitsForKeeper(d.currentWork(op.rec))
	}
	if len(commands) == 0 && !waits {
		// An exit report found here belongs to a run that is over, or cannot be decoded.
		return false, statefs.RemoveExit(d.owner.Dir(), statefs.ExitName(op.id()))
	}
	def, params, err := d.currentWork(op.rec)
	if err == nil && def.Work() == catalog.WorkHandler {
		err = errors.New("its job is a handler")
	}
	var r *run
	var do work
	if err == nil {
		_, err = d.openLogWriter(op, true)
	}
	if err == nil {
		r, do, err = d.newRun(op, def, params, true)
	}
	if isTransient(err) {
		d.closeLog(op)
		return false, err // the command continues, and the next reconcile tries again
	}
	if err != nil {
		d.logger.Error("a command of an earlier daemon is ended: its run cannot go on", "id", op.id(), "error", err)
		for _, a := range commands {
			endCommands([]keeper.Running{a})
		}
		return false, nil
	}
	do = d.continueWork(r, do, commands, waits, op.state == statefs.Paused)
	d.logger.Info("work of an earlier daemon goes on", "id", op.id(), "run", op.rec.Run, "commands", len(commands),
		"waits_for_keeper", waits)
	d.startRun(op, r, do)
	return true, nil
}

// continueWork makes a run continue with the commands of an earlier daemon, and returns its work.
// If waits is set, the work first waits for a keeper that may hold more of these commands.
func (d *Daemon) continueWork(r *run, do work, commands []adoptedCommand, waits, paused bool) work {
	r.onBegun = func() {} // the run has begun already
	r.gate.requested = paused
	if waits {
		return d.afterKeepersSettle(do)
	}
	r.adoptCommands(commands)
	return do
}

// adoptCommands adds the commands of an earlier daemon to the run.
func (r *run) adoptCommands(commands []adoptedCommand) {
	for _, a := range commands {
		r.commands.adopt(a)
		r.gate.attach(a.Running)
	}
}

// earlierProgress returns the last progress that an earlier daemon noted for the current run; its
// time is zero if none is known.
func (d *Daemon) earlierProgress(rec *statefs.Record) statefs.Progress {
	p, err := d.owner.ReadProgress(rec.ID)
	if err != nil && rec.Progress != nil {
		p = *rec.Progress
	}
	for _, t := range rec.Transitions {
		if t.Cause == statefs.CauseStart && p.At.Before(t.At) {
			return statefs.Progress{} // the progress is of an earlier run
		}
	}
	return p
}

// remainingCommands returns the commands of a run that keepers hold, and those whose keeper has
// ended since. side is the name of an optional step, or "".
func (d *Daemon) remainingCommands(id statefs.ID, held []keeper.HeldCommand, run int, side string) []adoptedCommand {
	var found []adoptedCommand
	there := make(map[int]bool)
	add := func(number int, name, report string) {
		if there[number] {
			return
		}
		p, ok := d.config.Keepers.Find(keeper.Key{Operation: id.String(), Run: run, Item: number}, report)
		if ok && report != "" && !d.straysEndedAt.IsZero() && p.Exit().Signal != "" && p.Exit().At.After(d.straysEndedAt) {
			p.Acknowledge()
			ok = false
		}
		if ok {
			there[number] = true
			found = append(found, adoptedCommand{Running: p, number: number, name: name})
		}
	}
	for _, h := range held {
		if h.Key.Run == run {
			add(h.Key.Item, h.Label, "")
		}
	}
	add(wholeRun, "", exitNameOf(id, side, wholeRun))
	for number, name := range d.itemReports(id, run, side) {
		add(number, name, exitNameOf(id, side, number))
	}
	return found
}

// itemReports returns the names of the items that have an exit report of the given run, by number.
func (d *Daemon) itemReports(id statefs.ID, run int, side string) map[int]string {
	log := d.owner.LogPath(id)
	if side != "" {
		log = d.owner.StepLogPath(id, side)
	}
	entries, err := os.ReadDir(scratchOf(log).dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.logger.Warn("exit reports of items cannot be found", "id", id, "error", err)
	}
	found := make(map[int]string)
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "item-")
		text, isExit := strings.CutSuffix(text, filepath.Ext(statefs.ExitName(id)))
		number, err := strconv.Atoi(text)
		if !ok || !isExit || err != nil || number < 1 {
			continue
		}
		report, err := keeper.ReadReport(d.owner.Dir(), exitNameOf(id, side, number))
		if err != nil || report.Run != run {
			continue // of another run, or not decodable: the item runs again
		}
		found[number] = string(report.Label)
	}
	return found
}
