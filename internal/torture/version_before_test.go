package torture

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// versionBefore is the last commit before the journal: its daemons know layout 1 only.
const versionBefore = "4dc515fa2feb5a4a0354809d3f9afcafd15a92bd"

// buildBefore builds the program of the version before from the history of this repository.
func buildBefore(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	has := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", versionBefore+"^{commit}")
	if err := has.Run(); err != nil {
		t.Skipf("this checkout has no commit %s: clone the whole repository with git", versionBefore[:12])
	}
	source, program := t.TempDir(), filepath.Join(t.TempDir(), "jobdir")
	unpack := `git -C "$0" archive "$1" | tar -x -C "$2"`
	archive := exec.CommandContext(t.Context(), "sh", "-c", unpack, root, versionBefore, source)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", versionBefore, err, out)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", versionBefore, err, out)
	}
	return program
}

// startWith starts a daemon of another program on the storage.
func (r *rig) startWith(program string, args ...string) (*daemon, error) {
	r.t.Helper()
	d := r.launch(args...)
	d.cmd.Path, d.cmd.Args[0] = program, program
	return d, r.await(d)
}

// TestVersionBefore takes a storage from the version before the journal to this one and back. What the other version
// has left is there: ended, paused and scheduled operations, alone and in lists. While the journal has what files lack,
// the version before refuses the storage; after a stop in order it takes it over.
func TestVersionBefore(t *testing.T) {
	t.Parallel()
	if prooftest.Count(true, false, false) {
		t.Skip("it builds another version: run it with JOBDIR_TORTURE=prove")
	}
	before := buildBefore(t)
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	want := make(map[statefs.ID]statefs.State)
	load := func(d *daemon, version string) {
		t.Helper()
		ended, err := d.Submit(t.Context(), "t", "quick", nil)
		must(t, err)
		_, err = d.Wait(t.Context(), ended.ID)
		must(t, err)
		want[ended.ID] = statefs.Completed
		later := client.Submission{Job: "t/quick", NotBefore: time.Now().Add(24 * time.Hour)}
		for _, list := range [][]client.Submission{{later}, {later}, {later, later, later}} {
			made, err := d.SubmitList(t.Context(), list)
			must(t, err)
			for _, op := range made {
				want[op.ID] = statefs.Scheduled
			}
			_, err = d.Request(t.Context(), made[0].ID, statefs.Pause, patience)
			must(t, err)
			want[made[0].ID] = statefs.Paused
		}
		t.Logf("%s: %d operations", version, len(want))
	}
	check := func(d *daemon, version string) {
		t.Helper()
		for id, state := range want {
			op, err := d.Operation(t.Context(), id)
			if err != nil || op.State != state {
				t.Errorf("%s has %s as %+v, %v, want %s\nit said: %s", version, id, op, err, state, d.stderr)
			}
		}
	}
	layout := func() string {
		data, err := os.ReadFile(filepath.Join(r.dir, "storage.json"))
		must(t, err)
		return string(data)
	}

	d, err := r.startWith(before)
	must(t, err)
	load(d, "the version before")
	d.stop(t)
	d = r.start("--commit", "journal")
	check(d, "this version")
	load(d, "this version")
	d.kill()
	if !strings.Contains(layout(), `"version":2`) {
		t.Errorf("after a kill, storage.json is %s", layout())
	}
	d, err = r.startWith(before)
	if !errors.Is(err, errEnded) || !strings.Contains(d.stderr.String(), "newer version") {
		t.Errorf("the version before takes over what a kill has left: %v\n%s", err, d.stderr)
	}
	d = r.start("--commit", "journal")
	check(d, "this version after a kill")
	d.stop(t)
	if !strings.Contains(layout(), `"version":1`) {
		t.Errorf("after a stop, storage.json is %s", layout())
	}
	d, err = r.startWith(before)
	must(t, err)
	check(d, "the version before, again")
	load(d, "the version before, again")
	d.kill()
	d = r.start("--commit", "journal")
	check(d, "this version, again")
	d.stop(t)
}
