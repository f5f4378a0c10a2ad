package work

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// HeldCommands returns the commands that living keepers hold, by operation.
func (h *Host) HeldCommands() map[statefs.ID][]keeper.HeldCommand {
	held := make(map[statefs.ID][]keeper.HeldCommand)
	if h.Keepers == nil {
		return held
	}
	for _, c := range h.Keepers.Commands() {
		id, err := statefs.ParseID(c.Key.Operation)
		if err != nil {
			continue // the key belongs to another program
		}
		held[id] = append(held[id], c)
	}
	return held
}

// Remaining returns the commands of a run that keepers hold, and those whose keeper has ended since.
// side is the name of an optional step, or "".
func (h *Host) Remaining(id statefs.ID, held []keeper.HeldCommand, run int, side string) []Command {
	var found []Command
	there := make(map[int]bool)
	add := func(number int, name, report string) {
		if there[number] {
			return
		}
		p, ok := h.Keepers.Find(keeper.Key{Operation: id.String(), Run: run, Item: number}, report)
		if ok && report != "" && !h.StraysEndedAt.IsZero() && p.Exit().Signal != "" && p.Exit().At.After(h.StraysEndedAt) {
			p.Acknowledge()
			ok = false
		}
		if ok {
			there[number] = true
			found = append(found, Command{Running: p, number: number, name: name})
		}
	}
	for _, c := range held {
		if c.Key.Run == run {
			add(c.Key.Item, c.Label, "")
		}
	}
	add(wholeRun, "", exitNameOf(id, side, wholeRun))
	for number, name := range h.itemReports(id, run, side) {
		add(number, name, exitNameOf(id, side, number))
	}
	return found
}

// itemReports returns the names of the items that have an exit report of the given run, by number.
func (h *Host) itemReports(id statefs.ID, run int, side string) map[int]string {
	entries, err := os.ReadDir(ScratchFolder(logPath(h.Owner, id, side)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.Logger.Warn("exit reports of items cannot be found", "id", id, "error", err)
	}
	found := make(map[int]string)
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "item-")
		text, isExit := strings.CutSuffix(text, filepath.Ext(statefs.ExitName(id, "")))
		number, err := strconv.Atoi(text)
		if !ok || !isExit || err != nil || number < 1 {
			continue
		}
		report, err := keeper.ReadReport(h.Owner.Dir(), exitNameOf(id, side, number))
		if err != nil || report.Run != run {
			continue // of another run, or not decodable: the item runs again
		}
		found[number] = string(report.Label)
	}
	return found
}

// Adopt makes a run that was not started continue with the commands of an earlier daemon. If waits is
// set, its work first waits for a keeper that may hold more of these commands.
func (r *Run) Adopt(commands []Command, waits, paused bool) {
	r.requested = paused
	if waits {
		do := r.do
		r.do = func(ctx context.Context, r *Run) error { return r.afterKeepersSettle(ctx, do) }
		return
	}
	r.adoptCommands(commands)
}

func (r *Run) adoptCommands(commands []Command) {
	for _, a := range commands {
		r.adopt(a)
		r.attach(a.Running)
	}
}

// afterKeepersSettle does work that first waits until it is known which of its commands exist. A
// cancel takes effect after that: the commands must not continue unseen.
func (r *Run) afterKeepersSettle(ctx context.Context, do kind) error {
	ended := ctx.Done()
	for settled := false; !settled; {
		select {
		case <-r.host.Keepers.Settled():
			settled = true
		case <-r.detaching:
			r.detached.Store(true)
			return ErrDetached
		case <-ended:
			if ended = nil; errors.Is(context.Cause(ctx), ErrInterrupted) {
				r.detached.Store(true) // the next daemon adopts it unchanged
				return ErrDetached
			}
		}
	}
	commands := r.host.Remaining(r.id, r.host.HeldCommands()[r.id], r.number, r.optionalStepName())
	if len(commands) == 0 {
		r.noteCutOff()
		_, err := keeper.EndMarked(context.WithoutCancel(ctx), r.marks(), r.grace(), r.host.Keepers.PIDs()...)
		return errors.Join(&Error{
			Code: "lost",
			Err:  errors.New("the command was cut off: no keeper has it, and nothing says how it ended"),
		}, err)
	}
	r.adoptCommands(commands)
	return do(ctx, r)
}

// EndCommands ends commands that no operation needs, and waits until they have ended.
func EndCommands[P keeper.Running](commands ...P) {
	for _, p := range commands {
		p.End(causeText(ErrInterrupted))
	}
	for _, p := range commands {
		<-p.Done()
		p.Acknowledge()
	}
}
