package torture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// nobody is the UID of a user without any rights.
const nobody = 65534

// either accepts one of two outcomes.
func either(one, other outcome) outcome {
	return func() error {
		if err := one(); err == nil {
			return nil
		}
		return other()
	}
}

// asNobody makes a rig whose daemons run as the user nobody, who owns the storage.
func asNobody(t *testing.T) (r *rig, start func() (*daemon, error)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this test gives files to another user: run it as root")
	}
	home := t.TempDir()
	r = newRig(t, filepath.Join(home, "storage"))
	must(t, os.Mkdir(r.dir, 0o750))
	must(t, os.Chown(r.dir, nobody, nobody))
	for _, path := range []string{r.effects, filepath.Join(r.jobs, "jobs.yaml")} {
		must(t, os.Chown(path, nobody, nobody))
	}
	for _, path := range []string{home, r.jobs, binary(t)} {
		for ; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
			must(t, os.Chmod(path, 0o755))
		}
	}
	return r, func() (*daemon, error) {
		d := r.launch("--sweep-interval", "1s")
		d.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return d, r.await(d)
	}
}

// toRoot gives a file to root, so that the user nobody can neither read nor write it.
func toRoot(name string) error { return errors.Join(os.Chown(name, 0, 0), os.Chmod(name, 0o600)) }

// TestFilesOfSomebodyElse gives single files of a storage to another user. Operations that need only the name
// of a file succeed; files whose content is needed stay untouched, and the daemon reports them.
func TestFilesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	r, start := asNobody(t)
	d, err := start()
	must(t, err)
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	y := &yard{t: t, dir: r.dir, tree: tree}
	l := &load{r: r, ledger: newLedger()}
	submit := func() statefs.ID {
		id := l.submit(t, d, "sleep")
		l.requestAction(t, d, id, statefs.Pause)
		awaitFile(t, tree, id, `"status":"paused"`)
		return id
	}
	marker, record, request, log, taken := submit(), submit(), submit(), submit(), submit()
	d.kill()

	touch := func(id statefs.ID, ask statefs.Action) error {
		name := y.jobs(statefs.RequestName(id, ask))
		return errors.Join(put(name, ""), toRoot(name))
	}
	must(t, toRoot(y.jobs(statefs.MarkerName(marker, statefs.Paused))))
	must(t, toRoot(y.record(record)))
	must(t, touch(request, statefs.Cancel))
	must(t, toRoot(strings.TrimSuffix(y.record(log), ".json")+".log"))
	must(t, touch(log, statefs.Resume))
	inTaken := filepath.Join(r.dir, "taken", statefs.RequestName(taken, statefs.Cancel))
	must(t, errors.Join(put(inTaken, ""), toRoot(inTaken)))
	storage := filepath.Join(r.dir, "storage.json")
	must(t, errors.Join(os.Chown(storage, 0, 0), os.Chmod(storage, 0o644)))

	d, err = start()
	must(t, err)
	cases := map[string]outcome{
		"marker of somebody else is a marker":         y.state(marker, statefs.Paused),
		"record of somebody else is left alone":       all(y.still(y.record(record)), y.state(record, statefs.Paused)),
		"request of somebody else counts by its name": y.ended(request, statefs.Cancelled, ""),
		"log of somebody else keeps the work from going on": either(y.state(log, statefs.Queued),
			y.state(log, statefs.Paused)),
		"taken request of somebody else is carried out": y.ended(taken, statefs.Cancelled, ""),
	}
	for name, found := range cases {
		until(t, name, func() bool { err = found(); return err == nil })
	}
	until(t, "/readyz says what cannot be dealt with", func() bool {
		_, body := d.readyz(t)
		return strings.Contains(body, log.String()) && strings.Contains(body, "permission denied")
	})
	said := []statefs.ID{log}
	if !journaled() { // the journal has the record too, and the start writes it again
		said = append(said, record)
	}
	for _, id := range said {
		if !strings.Contains(d.stderr.String(), id.String()) {
			t.Errorf("nothing is said of %s", id)
		}
	}
	l.submit(t, d, "quick") // this uses a new block of numbers
	figures.add(t, "files of another user, each used by its name or left alone", len(cases)+1)
	d.kill()
}

// TestFoldersOfSomebodyElse gives folders of a storage to another user: the daemon ends with a message that
// names the folder, or refuses submits, and the files stay.
func TestFoldersOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{
		"", "jobs", "operations", "operations/DAY", "definitions", "taken",
		"corrupt", "tmp", "new",
	} {
		t.Run("storage/"+folder, func(t *testing.T) {
			t.Parallel()
			r, start := asNobody(t)
			d, err := start()
			must(t, err)
			l := &load{r: r, ledger: newLedger()}
			id := l.submit(t, d, "sleep")
			l.requestAction(t, d, id, statefs.Pause)
			d.kill()
			path := filepath.Join(r.dir, strings.Replace(folder, "DAY", id.Day(), 1))
			must(t, errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o755)))

			d, err = start()
			if err == nil {
				err = uses(t, d)
				d.kill()
			}
			if exit, ended := errors.AsType[*exec.ExitError](err); ended {
				until(t, "the daemon says which folder it is", func() bool {
					said := d.stderr.String()
					return strings.Contains(said, "permission denied") && strings.Contains(said, filepath.Base(path))
				})
				if exit.ExitCode() <= 0 || strings.Contains(d.stderr.String(), "panic") {
					t.Errorf("it ended with %v: %s", exit, d.stderr)
				}
			} else if err != nil {
				t.Error(err)
			}
			must(t, l.ledger.checkDead(r.dir))
			must(t, os.Chown(path, nobody, nobody))
			d, err = start()
			must(t, err)
			tree, err := statefs.Open(r.dir, statefs.Options{})
			must(t, err)
			defer func() { must(t, tree.Close()) }()
			l.settle(t, tree, d)
			l.submit(t, d, "quick")
			d.kill()
		})
	}
}

// uses expects a submit to be accepted, or to be refused with the cause in the log.
func uses(t *testing.T, d *daemon) error {
	t.Helper()
	_, err := d.Submit(t.Context(), "t", "quick", nil)
	if err == nil {
		return nil
	}
	if _, refused := errors.AsType[*client.Error](err); !refused {
		return fmt.Errorf("a submit ends with %w, and the daemon said %s", err, d.stderr)
	}
	until(t, "the daemon says why", func() bool { return strings.Contains(d.stderr.String(), "permission denied") })
	return nil
}
