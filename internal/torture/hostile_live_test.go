package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// running submits an operation and returns when its work has started.
func (y *yard) running() statefs.ID {
	y.t.Helper()
	id := y.submit("sleep")
	y.wait("it runs", y.state(id, statefs.Running))
	return id
}

// recorded is running, and returns when its record says so too: the record of a start follows the marker, and would
// otherwise be written between the removal of the record and the file that takes its place.
func (y *yard) recorded() statefs.ID {
	y.t.Helper()
	id := y.running()
	y.wait("its record is written", y.whole(id, statefs.Running))
	return id
}

// replace puts another file in the place of a record, in one step: a sweep that missed the record in between would
// write it again, over the other file.
func (y *yard) replace(name string, place func(*yard, string) error) error {
	aside := filepath.Join(y.t.TempDir(), filepath.Base(name)) // the same name, to which a link may lead
	if err := place(y, aside); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE)
}

func (y *yard) wait(what string, found outcome) {
	y.t.Helper()
	var last error
	y.t.Cleanup(func() {
		if y.t.Failed() && last != nil {
			y.t.Logf("%s: %v", what, last)
		}
	})
	until(y.t, what, func() bool { last = found(); return last == nil })
}

func (y *yard) whole(id statefs.ID, want statefs.State) outcome {
	return func() error {
		rec, err := y.tree.ReadRecord(id)
		if err != nil || rec.Status != want {
			return fmt.Errorf("its record says %+v, want %s: %w", rec, want, err)
		}
		return nil
	}
}

// intrude puts everything into the yard of a running daemon, and returns the expected outcomes.
func intrude(y *yard) map[string]outcome {
	cases := make(map[string]outcome)
	y.names(cases)
	for kind, place := range strangeFiles {
		marker := y.jobs(statefs.MarkerName(y.foreign(1), statefs.Running))
		must(y.t, place(y, marker))
		cases[kind+" as a marker is ignored"] = y.still(marker)

		asked := y.running()
		must(y.t, place(y, y.jobs(statefs.RequestName(asked, statefs.Cancel))))
		cases[kind+" as a request has no effect"] = y.state(asked, statefs.Running)

		odd := y.recorded()
		must(y.t, y.replace(y.record(odd), place))
		cases[kind+" as a record is kept, and the record is written again"] = all(y.kept(odd.String()+".json"),
			y.whole(odd, statefs.Running))

		written := y.recorded()
		must(y.t, errors.Join(y.replace(y.record(written), place),
			put(y.jobs(statefs.RequestName(written, statefs.Pause)), "")))
		cases[kind+" as a record is kept by the next write of the record"] = all(
			y.state(written, statefs.Paused), y.kept(written.String()+".json"), y.whole(written, statefs.Paused),
			y.logged(written.String()+".json"))

		second := y.running()
		must(y.t, place(y, y.jobs(statefs.MarkerName(second, statefs.Paused))))
		cases[kind+" as a second marker is kept, and the first stays"] = all(y.state(second, statefs.Running),
			y.kept(statefs.MarkerName(second, statefs.Paused)))
	}
	for kind, damage := range damages {
		id := y.recorded()
		good, err := os.ReadFile(y.record(id))
		aside := filepath.Join(y.t.TempDir(), "record")
		must(y.t, errors.Join(err, damage(aside, good), os.Rename(aside, y.record(id))))
		must(y.t, put(y.jobs(statefs.RequestName(id, statefs.Pause)), ""))
		cases["record "+kind+" is written anew from what is known"] = all(y.state(id, statefs.Paused),
			y.whole(id, statefs.Paused))
	}
	y.moves(cases)
	return cases
}

// logged expects a line about a file that was moved to corrupt/ in the log of the daemon.
func (y *yard) logged(base string) outcome {
	return func() error {
		for line := range strings.Lines(y.log.String()) {
			if strings.Contains(line, "moved a file of the wrong type to corrupt/") && strings.Contains(line, base) {
				return nil
			}
		}
		return fmt.Errorf("the daemon logged nothing about %s", base)
	}
}

// moves are renames of the wrong file by a person.
func (y *yard) moves(cases map[string]outcome) {
	for _, ending := range []string{".quewed", ".running.bak", ".completed", ".failed_retryable", "", ".scheduled"} {
		id := y.running()
		must(y.t, os.Rename(y.jobs(statefs.MarkerName(id, statefs.Running)), y.jobs(id.String()+ending)))
		cases[fmt.Sprintf("marker renamed to %q is put back", ending)] = all(y.state(id, statefs.Running),
			y.gone(y.jobs(id.String()+ending)))
	}
	two := y.running()
	must(y.t, put(y.jobs(statefs.MarkerName(two, statefs.Trailing)), ""))
	cases["of two markers the one that was there stays"] = all(y.state(two, statefs.Running),
		y.gone(y.jobs(statefs.MarkerName(two, statefs.Trailing))))

	replaced := y.running()
	aside := filepath.Join(y.t.TempDir(), "marker")
	must(y.t, errors.Join(put(aside, "what an editor saves\n"),
		os.Rename(aside, y.jobs(statefs.MarkerName(replaced, statefs.Running)))))
	cases["marker that an editor saved is a marker"] = y.state(replaced, statefs.Running)

	victim, mover := y.running(), y.running()
	must(y.t, os.Rename(y.jobs(statefs.MarkerName(mover, statefs.Running)),
		y.jobs(statefs.MarkerName(victim, statefs.Running))))
	cases["marker moved over that of another: both have one"] = all(y.state(victim, statefs.Running),
		y.state(mover, statefs.Running))

	removed := y.running()
	must(y.t, os.Remove(y.jobs(statefs.MarkerName(removed, statefs.Running))))
	cases["marker that is removed cancels"] = y.ended(removed, statefs.Cancelled, "")

	unasked := y.running()
	request := y.jobs(statefs.RequestName(unasked, statefs.Pause))
	must(y.t, errors.Join(put(request, ""), ignoreMissing(os.Remove(request))))
	cases["request that is taken back counts or not, and nothing is left"] = y.gone(request)

	gone := y.recorded()
	must(y.t, os.Remove(y.record(gone)))
	must(y.t, put(y.jobs(statefs.RequestName(gone, statefs.Pause)), ""))
	cases["record that is removed is written anew"] = all(y.state(gone, statefs.Paused), y.whole(gone, statefs.Paused))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// TestHostileFilesMeanwhile is TestHostileFiles with a running daemon: each file causes an event.
func TestHostileFilesMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	d := r.start("--sweep-interval", "1s")
	tree, err := statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	y := &yard{t: t, dir: r.dir, tree: tree, log: d.stderr}
	cases := intrude(y)
	y.settles(d, cases)
	figures.add(t, "files put beside a running daemon, each ignored, kept or repaired", len(cases))
	d.kill()
}
