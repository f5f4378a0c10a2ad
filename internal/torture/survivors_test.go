package torture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// begun is a command that has started.
type begun struct {
	id  statefs.ID
	run int
	pid int
}

// begun returns the commands of whole runs that have started, as they reported it.
func (r *rig) begun(t *testing.T) []begun {
	t.Helper()
	data, err := os.ReadFile(r.effects)
	must(t, err)
	var all []begun
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 3 || !strings.HasSuffix(line, "\n") || strings.Contains(words[1], "/") {
			continue
		}
		id, err := statefs.ParseID(words[0])
		must(t, err)
		run, err := strconv.Atoi(words[1])
		must(t, err)
		pid, err := strconv.Atoi(words[2])
		must(t, err)
		all = append(all, begun{id, run, pid})
	}
	return all
}

// checkSurvivors checks that a kill of the daemon has neither ended nor restarted a command: a command that
// never ends by itself, and was not cancelled, is still the same process. It returns their number.
func (l *load) checkSurvivors(t *testing.T, tree *statefs.Tree) (alive int, err error) {
	t.Helper()
	var errs []error
	seen := make(map[statefs.ID]bool)
	for _, b := range l.r.begun(t) {
		if seen[b.id] {
			errs = append(errs, fmt.Errorf("%s has begun a second time, as run %d", b.id, b.run))
		}
		seen[b.id] = true
		endless := false
		l.ledger.each(func(id statefs.ID, op *acknowledged) {
			endless = endless || id == b.id && !op.cancelled && (op.job == "sleep" || op.job == "survivor")
		})
		if !endless {
			continue
		}
		if err := aliveAs(b); err != nil {
			rec, recErr := tree.ReadRecord(b.id)
			errs = append(errs, fmt.Errorf("%s: %w; its record: %+v, %w", b.id, err, rec, recErr))
			continue
		}
		alive++
	}
	return alive, errors.Join(errs...)
}

// aliveAs reports an error when the process of a command is gone.
func aliveAs(b begun) error {
	process := filepath.Join("/proc", strconv.Itoa(b.pid))
	for {
		environ, err := os.ReadFile(filepath.Join(process, "environ"))
		if err != nil {
			return fmt.Errorf("its process %d is gone: %w", b.pid, err)
		}
		if bytes.Contains(environ, []byte("JOBDIR_ID="+b.id.String()+"\x00")) {
			return nil
		}
		// A zombie has no environment. A process in the middle of its exec shows none either, for a moment.
		stat, err := os.ReadFile(filepath.Join(process, "stat"))
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if err != nil || len(environ) > 0 || bytes.HasPrefix(state, []byte("Z")) || bytes.HasPrefix(state, []byte("X")) {
			return fmt.Errorf("its process %d is gone, or has ended: %s", b.pid, stat)
		}
	}
}

// checkTicks checks that the log of the survivor has each of its lines once and in order, whatever happened
// to the daemons.
func (l *load) checkTicks(t *testing.T) {
	t.Helper()
	l.ledger.each(func(id statefs.ID, op *acknowledged) {
		if op.job != "survivor" {
			return
		}
		tree, err := statefs.Open(l.r.dir, statefs.Options{})
		must(t, err)
		defer func() { _ = tree.Close() }() // opened for reading
		log, err := os.ReadFile(tree.LogPath(id))
		must(t, err)
		next := 1
		for line := range strings.Lines(string(log)) {
			if strings.HasPrefix(line, "  ") {
				continue // a line of the daemon
			}
			if line != fmt.Sprintf("tick %d\n", next) {
				t.Fatalf("line %d of the survivor is %q", next, line)
			}
			next++
		}
		if next == 1 {
			t.Fatal("the survivor has said nothing")
		}
		figures.add(t, "lines of the command that outlived every kill", next-1)
	})
}
