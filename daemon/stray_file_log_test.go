package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// Files that a person created and that have no effect are logged once each.
func TestFilesThatDoNothing(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	logged := b.logInto()
	for _, name := range []string{"w-cron.disable", "test-count.disabled", "unknown.disabled"} {
		must(t, os.WriteFile(filepath.Join(b.dir, "schedules", name), nil, 0o640))
	}
	b.begin()
	for _, name := range []string{
		"lanes/cookie.pause", "lanes/nolane.paused", "new/x.JSON", "new/not-one.txt",
		"new/.hidden.JSON",
	} {
		must(t, os.WriteFile(filepath.Join(b.dir, name), nil, 0o640))
	}
	lines := []string{
		`file=schedules/w-cron.disable reason="its name is not GROUP-JOB.disabled"`,
		`file=schedules/test-count.disabled reason="there is no job \"test-count\" with a schedule"`,
		`file=schedules/unknown.disabled reason="there is no job \"unknown\" with a schedule"`,
		`file=lanes/cookie.pause reason="its name is not LANE.paused, LANE.closed or LANE.capacity"`,
		`file=lanes/nolane.paused reason="there is no lane \"nolane\"; the lanes are default"`,
		`file=new/x.JSON reason="its name has to end in .json"`,
	}
	for _, line := range lines {
		b.poll(line, func() bool { return logged.with(line) == 1 })
	}
	if _, err := b.daemon.Sweep(t.Context(), false); err != nil {
		t.Error(err)
	}
	b.drop("after", `{"job": "test/count"}`)
	b.accepted("after")
	must(t, b.stop())
	for _, line := range lines {
		if n := logged.with(line); n != 1 {
			t.Errorf("%d times: %s", n, line)
		}
	}
	if logged.with("not-one") > 0 || logged.with("hidden") > 0 {
		t.Error("files that look like nothing are said")
	}
}

// An answer to an earlier submission is removed before a submission of the same name is handled.
func TestAnswersOfEarlierSubmissionsGo(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	for _, suffix := range []string{".accepted", ".rejected"} {
		must(t, os.WriteFile(b.path("again"+suffix), []byte("old"), 0o640))
	}
	b.drop("again", `{"job": "test/count"}`)
	must(t, os.WriteFile(b.path("other.accepted"), []byte("old"), 0o640))
	owner, err := statefs.Own(b.tree)
	must(t, err)
	defer func() { must(t, owner.Release()) }()
	must(t, owner.Inbox.Take("again"))
	for name, want := range map[string]bool{"again.accepted": false, "again.rejected": false, "other.accepted": true} {
		if _, err := os.Stat(b.path(name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
