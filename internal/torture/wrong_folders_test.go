package torture

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// replaced expects that a folder has taken the place of a file, that the file is in corrupt/, and a line about it in
// the log.
func (s *wrongSite) replaced(name string) outcome {
	return func() error {
		info, err := os.Lstat(filepath.Join(s.dir, name))
		if err != nil || !info.IsDir() {
			return fmt.Errorf("%s is no folder: %w", name, err)
		}
		for line := range strings.Lines(s.daemon.stderr.String()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "file="+name+" ") {
				return s.kept(filepath.Base(name))()
			}
		}
		return fmt.Errorf("the log does not name %s", name)
	}
}

// replaceFolder replaces a folder by a file. The daemon may write into the folder in between, or have it made again.
func (s *wrongSite) replaceFolder(name string, place func(y *yard, name string) error) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	until(s.t, name+" is replaced", func() bool { return os.RemoveAll(path) == nil && place(s.yard, path) == nil })
}

// TestFilesInPlaceOfFolders replaces the folders of a storage by files and by fifos, while the daemon runs and while
// it does not. Lists, submits and starts work, and the files go to corrupt/.
func TestFilesInPlaceOfFolders(t *testing.T) {
	t.Parallel()
	for kind, place := range map[string]func(y *yard, name string) error{
		"file": func(_ *yard, name string) error { return put(name, "a note") },
		"fifo": strangeFiles["fifo"],
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, filepath.Join(t.TempDir(), "storage"))
			must(t, os.WriteFile(filepath.Join(r.jobs, "wrong.yaml"), []byte(wrongJobs), 0o600))
			s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID)}
			start := func() {
				d := r.start("--sweep-interval", "1s")
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the daemon said: %s", d.stderr)
					}
				})
				s.daemon = d
			}
			start()
			var err error
			s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
			must(t, err)
			defer func() { must(t, s.tree.Close()) }()
			s.begin("ended", "lines", "{}", statefs.Completed)
			s.begin("running", "sleep", `{"n":1}`, statefs.Running)
			s.wait("its record is written", s.whole(s.ids["running"], statefs.Running))
			until(t, "its work writes", func() bool { // what loses its log before that has not begun, and fails
				log, err := os.ReadFile(filepath.Join(r.dir, "operations", s.ids["running"].Day(), s.ids["running"].String()+".log"))
				return err == nil && strings.Contains(string(log), "line")
			})
			day := "operations/" + s.ids["ended"].Day()
			// corrupt/ first: what is in the place of the others goes there
			running := []string{"corrupt", "new", "lanes", "schedules", "definitions", "tmp", "events", "keys", day}
			for _, name := range running {
				s.replaceFolder(name, place)
			}
			s.works("while it runs")
			for _, name := range running {
				s.wait(name+" is a folder again", s.replaced(name))
			}
			s.wait("the record of the running operation is written again", s.whole(s.ids["running"], statefs.Running))
			if status, body := s.call("POST", "/api/v1/operations/"+s.ids["running"].String()+"/cancel", ""); status >= 300 {
				t.Errorf("a cancel: %d %s", status, body)
			}
			s.wait("it is cancelled", s.whole(s.ids["running"], statefs.Cancelled))
			if status, body := s.call("POST", "/w/lines", "{}", "Idempotency-Key: a key"); status != http.StatusCreated {
				t.Errorf("a submit with a key: %d %s", status, body)
			}
			s.daemon.kill()
			stopped := slices.Concat(running, []string{"jobs", "operations", "taken", "outbox"})
			for _, name := range stopped {
				if name != day {
					s.replaceFolder(name, place)
				}
			}
			start()
			s.works("after a start")
			for _, name := range stopped {
				if name != day {
					s.wait(name+" is a folder again", s.replaced(name))
				}
			}
			s.daemon.kill()
			s.replaceFolder(day, place)
			start()
			s.works("after a start without the folder of the day")
			s.wait(day+" is a folder again", s.replaced(day))
			s.daemon.kill()
		})
	}
}

// TestLinksInPlaceOfFoldersAreRefused: a link may lead to another disk, so it stays, and the start fails.
func TestLinksInPlaceOfFoldersAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, errors.Join(os.Mkdir(r.dir, 0o750), os.Symlink(t.TempDir(), filepath.Join(r.dir, "lanes"))))
	_, err := r.tryStart()
	if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "lanes is not a directory but a symbolic link; remove it") {
		t.Errorf("the daemon started, or ended with %v", err)
	}
}
