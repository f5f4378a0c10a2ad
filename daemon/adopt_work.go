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
	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// findHeld asks the keepers what they have in hand.
func (d *Daemon) findHeld() {
	d.held = make(map[statefs.ID][]keeper.Held)
	if d.config.Keepers == nil {
		return
	}
	for _, h := range d.config.Keepers.Held() {
		id, err := statefs.ParseID(h.Key.Operation)
		if err != nil {
			continue // of another program
		}
		d.held[id] = append(d.held[id], h)
	}
}

// endUnwanted ends what the keepers have in hand and no operation is about: of an earlier run, of one that has ended, was moved by hand
// or is gone. It waits for them, since the next run of the same operation is about to begin.
func (d *Daemon) endUnwanted() error {
	var unwanted []keeper.Running
	for id, held := range d.held {
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
				d.logger.Info("a command of an earlier daemon is of no use any more", "command", h.Key, "pid", h.PID, "ended", h.Ended)
			}
		}
	}
	endAll(unwanted)
	return nil
}

// anyRun is no number of a run: those of all runs are wanted.
const anyRun = -1

// wantedRuns returns the numbers of the runs whose commands are to go on.
func (d *Daemon) wantedRuns(id statefs.ID) (runs []int, err error) {
	sight, err := d.owner.Look(id)
	if err != nil {
		return nil, err
	}
	rec, err := d.owner.ReadRecord(id)
	if errors.Is(err, statefs.ErrNewerVersion) || mends(err) {
		return []int{anyRun}, nil // it is left alone with all that it has, or the look at it tries again
	}
	if err != nil || rec.Status.Terminal() && !rec.Trailing || len(sight.States) == 0 {
		return nil, nil //nolint:nilerr // whatever the reason, the look at this operation says it, and nothing goes on without a record
	}
	state := sight.States[0]
	if len(sight.States) > 1 {
		state = d.owner.Surviving(id, sight.States, rec)
	}
	for _, s := range rec.Steps {
		if s.Optional && s.Status == steps.Running {
			runs = append(runs, s.Run)
		}
	}
	if !rec.Trailing && mayRun(rec, statefs.Meant(rec, state)) {
		runs = append(runs, runNumber(rec))
	}
	return runs, nil
}

// runNumber is the number of the run of an operation that is not one of an optional step.
func runNumber(rec *statefs.Record) int {
	if at := rec.CurrentStep(); at != nil {
		return at.Run
	}
	return rec.Run
}

// mayRun says whether an operation in a state may have commands of its last run that are to go on, or whose end the record does not say yet.
// One that has a time at which it is due has had its run, and what came of that is in the record.
func mayRun(rec *statefs.Record, state statefs.State) bool {
	if at := rec.CurrentStep(); len(rec.Steps) > 0 && (at == nil || at.Status != steps.Running) {
		return false // it is between two steps
	}
	return rec.DueAt == nil && (state == statefs.Running || state == statefs.Paused)
}

func endAll(commands []keeper.Running) {
	for _, p := range commands {
		p.End(causeInterrupted)
	}
	for _, p := range commands {
		<-p.Done()
		p.Taken()
	}
}

// endHeld ends what the keepers have in hand of an operation that ends now.
func (d *Daemon) endHeld(id statefs.ID) {
	var commands []keeper.Running
	for _, h := range d.held[id] {
		if p, ok := d.config.Keepers.Find(h.Key, ""); ok {
			commands = append(commands, p)
		}
	}
	endAll(commands)
}

// adoptWork goes on with a run that an earlier daemon has begun, when its command is still in the hands of a keeper or has left a report
// of its end. Nothing is said in the log: for whoever reads that, nothing has happened.
func (d *Daemon) adoptWork(op *operation) (goesOn bool, err error) {
	if d.config.Keepers == nil || op.rec.Starts == 0 {
		return false, nil
	}
	var commands []adopted
	if mayRun(op.rec, op.state) {
		commands = d.leftCommands(op.rec, runNumber(op.rec), "")
	}
	if len(commands) == 0 {
		// One that is there is of a run that is over, or cannot be understood.
		return false, statefs.RemoveExit(d.owner.Dir(), statefs.ExitName(op.id()))
	}
	def, params, err := d.workOf(op.rec)
	if err == nil && def.Work() == catalog.WorkHandler {
		err = errors.New("its job is a handler")
	}
	var r *run
	var do work
	if err == nil {
		_, err = d.openShared(op, true)
	}
	if err == nil {
		r, do, err = d.newRun(op, def, params, true)
	}
	if mends(err) {
		d.closeLog(op)
		return false, err // it goes on meanwhile, and is looked at again
	}
	if err != nil {
		d.logger.Error("a command of an earlier daemon is ended: its run cannot go on", "id", op.id(), "error", err)
		for _, a := range commands {
			endAll([]keeper.Running{a})
		}
		return false, nil
	}
	r.takeOver(commands, op.state == statefs.Paused)
	d.logger.Info("work of an earlier daemon goes on", "id", op.id(), "run", op.rec.Run, "commands", len(commands))
	d.startRun(op, r, do)
	return true, nil
}

// takeOver has a run go on with the commands that an earlier daemon has started.
func (r *run) takeOver(commands []adopted, paused bool) {
	r.begun = func() {} // it has
	r.gate.asked = paused
	for _, a := range commands {
		r.commands.adopt(a)
		r.gate.attach(a.Running)
	}
}

// saidBefore is how far the present run of an operation was when an earlier daemon last heard of it; its time is zero when that is not known.
func (d *Daemon) saidBefore(rec *statefs.Record) statefs.Progress {
	p, err := d.owner.ReadProgress(rec.ID)
	if err != nil && rec.Progress != nil {
		p = *rec.Progress
	}
	for _, t := range rec.Transitions {
		if t.Cause == statefs.CauseStart && p.At.Before(t.At) {
			return statefs.Progress{} // of an earlier run
		}
	}
	return p
}

// leftCommands finds the commands of a run, of an optional step when side is its name: in the hands of keepers, and those whose keeper has ended since.
func (d *Daemon) leftCommands(rec *statefs.Record, run int, side string) []adopted {
	var found []adopted
	there := make(map[int]bool)
	add := func(number int, name, report string) {
		if there[number] {
			return
		}
		p, ok := d.config.Keepers.Find(keeper.Key{Operation: rec.ID.String(), Run: run, Item: number}, report)
		if ok && report != "" && !d.straysSince.IsZero() && p.Exit().Signal != "" && p.Exit().At.After(d.straysSince) {
			p.Taken()
			ok = false
		}
		if ok {
			there[number] = true
			found = append(found, adopted{Running: p, number: number, name: name})
		}
	}
	for _, h := range d.held[rec.ID] {
		if h.Key.Run == run {
			add(h.Key.Item, h.Label, "")
		}
	}
	add(wholeRun, "", exitNameOf(rec.ID, side, wholeRun))
	for number, name := range d.itemReports(rec.ID, run, side) {
		add(number, name, exitNameOf(rec.ID, side, number))
	}
	return found
}

// itemReports returns the names of the items, by number, that have left an exit report of a run.
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
			continue // not of this run, or not to be understood: the item is done again
		}
		found[number] = string(report.Label)
	}
	return found
}
