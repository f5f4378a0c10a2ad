package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// wrongJobs use every kind of file that a storage has.
const wrongJobs = `
group: w
name: sleep
unique: {on_hit: off}
params: {n: {type: integer, default: 0}}
key: "${params.n}"
run: [sh, -c, 'echo line; exec sleep 1000']
---
group: w
name: lines
unique: {on_hit: off}
items: {range: [1, 2]}
run: [sh, -c, 'echo ${item}']
---
group: w
name: wide
unique: {on_hit: off}
items: {range: [1, 2]}
parallel: 2
run: [sh, -c, 'echo ${item}; exec sleep 1000']
---
group: w
name: steps
unique: {on_hit: off}
steps:
  - {name: first, run: [echo, one]}
  - {name: beside, optional: true, run: [sh, -c, 'exec sleep 1000']}
  - {name: last, needs: [first], approve: true, run: [echo, two]}
---
group: w
name: delivered
unique: {on_hit: off}
run: [echo, one]
deliver:
  - folder: {path: /nowhere/jobdir-torture}
---
group: w
name: nightly
schedule: {cron: "0 3 * * *"}
run: [echo, one]
`

// wrongKinds replace a file by something invalid.
func wrongKinds() map[string]func(y *yard, name string) error {
	kinds := maps.Clone(strangeFiles)
	kinds["empty file"] = func(_ *yard, name string) error { return put(name, "") }
	kinds["file of nonsense"] = func(_ *yard, name string) error { return put(name, "\x00\xff{]\n\n\"") }
	return kinds
}

// wrongSite is a storage that contains every kind of file that the daemon reads.
type wrongSite struct {
	*yard
	daemon *daemon
	ids    map[string]statefs.ID
}

// call makes a request to the daemon and returns the status and the body of its answer.
func (s *wrongSite) call(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.daemon.Address()+path, strings.NewReader(body))
	must(s.t, err)
	for _, h := range append(headers, "Content-Type: application/json") {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(req)
	must(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	must(s.t, err)
	return answer.StatusCode, string(data)
}

// begin submits an operation and returns when its marker is in a state.
func (s *wrongSite) begin(name, job, params string, state statefs.State) {
	s.t.Helper()
	op, err := s.daemon.Submit(s.t.Context(), "w", job, json.RawMessage(params))
	must(s.t, err)
	s.ids[name] = op.ID
	if state.Live() {
		s.wait(name+" is "+string(state), s.state(op.ID, state))
		return
	}
	_, err = s.daemon.Wait(s.t.Context(), op.ID)
	must(s.t, err)
}

// populate runs operations until the storage has every kind of file.
func (s *wrongSite) populate() {
	s.t.Helper()
	status, body := s.call("POST", "/w/lines", "{}", "Idempotency-Key: a key")
	if status != http.StatusCreated {
		s.t.Fatalf("%d %s", status, body)
	}
	s.begin("ended", "lines", "{}", statefs.Completed)
	s.begin("delivered", "delivered", "{}", statefs.Completed)
	s.begin("running", "sleep", `{"n":1}`, statefs.Running)
	s.begin("queued", "sleep", `{"n":1}`, statefs.Queued)
	s.begin("paused", "sleep", `{"n":2}`, statefs.Running)
	must(s.t, put(s.jobs(statefs.RequestName(s.ids["paused"], statefs.Pause)), ""))
	s.wait("it is paused", s.state(s.ids["paused"], statefs.Paused))
	s.begin("steps", "steps", "{}", statefs.WaitingApproval)
	for _, name := range []string{
		"lanes/default.capacity", "lanes/other.paused", "lanes/more.closed",
		"schedules/w-nightly.disabled",
	} {
		must(s.t, put(filepath.Join(s.dir, name), ""))
	}
}

// files returns all files of the storage that the daemon reads, except the markers of operations: existing
// files, and files that exist only for a moment.
func (s *wrongSite) files() (files []string) {
	s.t.Helper()
	must(s.t, filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(s.dir, path)
		switch {
		case err != nil:
			return ignoreMissing(err)
		case entry.IsDir() && slices.Contains([]string{"corrupt", "tmp", "jobs", "new", "taken"}, name):
			return fs.SkipDir
		case strings.HasPrefix(name, "journal/"): // without it, no daemon starts
		case !entry.IsDir():
			files = append(files, name)
		}
		return nil
	}))
	running, ended := s.ids["running"].String(), s.ids["ended"].String()
	day := filepath.Join("operations", s.ids["running"].Day())
	for _, name := range []string{
		"taken/" + running + ".cancel_requested", "taken/" + running + ".batch", "taken/" + ended + ".records",
		"taken/one.json", "new/one.json", "new/two.accepted", "new/two.rejected", "new/two.waiting", "new/two.json",
		"jobs/" + running + ".nonsense",
		"outbox/" + ended + ".1-folder.pending", "outbox/" + ended + ".1-folder.failed_manual",
		"outbox/" + ended + ".1-folder.retry_requested",
		filepath.Join(day, running+".exit"), filepath.Join(day, running+".progress"), filepath.Join(day, ended+".deleted"),
		"lanes/default.rotation", "lanes/default.starts", "lanes/default.failures", "schedules/w-nightly.json",
		"keeper-9.lock", "keeper-9.sock", "keeper-9.log",
	} {
		if !slices.Contains(files, name) {
			files = append(files, name)
		}
	}
	return files
}

// replace replaces a file by something invalid.
func (s *wrongSite) replace(name string, place func(y *yard, name string) error) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	must(s.t, errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o750)))
	if err := place(s.yard, path); err != nil && !errors.Is(err, os.ErrExist) {
		// the daemon may recreate its file immediately
		s.t.Fatal(err)
	}
}

// works checks that the daemon can do all of its work.
func (s *wrongSite) works(when string) {
	s.t.Helper()
	for _, path := range []string{
		"/readyz", "/metrics", "/api/v1/operations", "/api/v1/operations?status=running", "/api/v1/operations?sort=updated",
		"/api/v1/operations?q=sleep",
		"/api/v1/operations?needs_attention=true", "/api/v1/operations?result=success", "/api/v1/finished", "/w/operations",
		"/api/v1/lanes", "/api/v1/stats",
		"/api/v1/outbox", "/api/v1/schedules", "/api/v1/jobs",
	} {
		status, body := 0, ""
		until(s.t, path, func() bool {
			status, body = s.call("GET", path, "")
			return status == http.StatusOK || status != http.StatusServiceUnavailable // the index may be under construction
		})
		if status != http.StatusOK {
			s.t.Errorf("%s: GET %s: %d %s", when, path, status, body)
		}
	}
	for name, id := range s.ids {
		if status, body := s.call("GET", "/api/v1/operations/"+id.String(), ""); status >= 500 {
			s.t.Errorf("%s: the operation %s: %d %s", when, name, status, body)
		}
	}
	op, err := s.daemon.Submit(s.t.Context(), "w", "lines", nil)
	if err != nil {
		s.t.Errorf("%s: %v", when, err)
		return
	}
	if footer, err := s.daemon.Wait(s.t.Context(), op.ID); err != nil || footer.Result != statefs.Success {
		s.t.Errorf("%s: it ended with %+v, %v", when, footer, err)
	}
}

// knows checks that the records of running operations are written again.
func (s *wrongSite) knows() {
	s.t.Helper()
	for name, state := range map[string]statefs.State{"running": statefs.Running, "paused": statefs.Paused} {
		s.wait("the record of the operation "+name, s.whole(s.ids[name], state))
	}
}

// modes returns an error for files below a folder whose mode is not that of a storage file.
func modes(dir string, except ...string) error {
	var wrong []error
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || slices.Contains(except, name) {
			return ignoreMissing(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		want := map[fs.FileMode]fs.FileMode{0: 0o640, fs.ModeDir: 0o750, fs.ModeSocket: 0o600}[info.Mode().Type()]
		if got := info.Mode().Perm(); got != want {
			wrong = append(wrong, fmt.Errorf("%s has the mode %o, want %o", name, got, want))
		}
		return nil
	})
	return errors.Join(append(wrong, err)...)
}

// TestModes lets daemons with a strict and with a lax umask create every kind of file. Files that commands
// create are not checked.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"077", "000"} {
		t.Run(umask, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, filepath.Join(t.TempDir(), "storage"))
			r.umask = umask
			must(t, os.WriteFile(filepath.Join(r.jobs, "wrong.yaml"), []byte(wrongJobs), 0o600))
			s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID), daemon: r.start()}
			defer s.daemon.kill()
			var err error
			s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
			must(t, err)
			defer func() { must(t, s.tree.Close()) }()
			s.populate()
			s.begin("items at once", "wide", "{}", statefs.Running)
			s.wait("an item has begun", s.still(strings.TrimSuffix(s.record(s.ids["items at once"]), ".json")+".run/item-2.log"))
			byPerson := []string{
				"lanes/default.capacity", "lanes/other.paused", "lanes/more.closed",
				"schedules/w-nightly.disabled",
			}
			// a file gets its mode shortly after its name
			s.wait("all modes are right", func() error { return modes(s.dir, byPerson...) })
		})
	}
}

// TestWrongFiles replaces each kind of file that the daemon reads by each kind of invalid file, all at once,
// while the daemon runs and while it does not. None of them breaks a list, a start or the readiness. The
// short form draws three of the kinds.
func TestWrongFiles(t *testing.T) {
	t.Parallel()
	kinds := wrongKinds()
	names := slices.Collect(maps.Keys(kinds))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, kind := range names[:prooftest.Count(3, len(names), len(names))] {
		t.Run(strings.ReplaceAll(kind, " ", "_"), func(t *testing.T) {
			r := newRig(t, filepath.Join(t.TempDir(), "storage"))
			must(t, os.WriteFile(filepath.Join(r.jobs, "wrong.yaml"), []byte(wrongJobs), 0o600))
			s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID)}
			s.daemon = r.start("--sweep-interval", "1s")
			var err error
			s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
			must(t, err)
			defer func() { must(t, s.tree.Close()) }()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the daemon said: %s", s.daemon.stderr)
				}
			})
			s.populate()
			files := s.files()
			if strangeFiles[kind] != nil { // otherwise they are a request and a second marker
				running := s.ids["running"].String()
				files = append(files, "jobs/"+running+".cancel_requested", "jobs/"+running+".paused")
			}
			for _, name := range files {
				s.replace(name, kinds[kind])
			}
			s.works("while it runs")
			s.knows()
			s.daemon.kill()
			for _, name := range files {
				s.replace(name, kinds[kind])
			}
			s.daemon = r.start("--sweep-interval", "1s")
			s.works("after a start")
			figures.add(t, "files replaced by something else", len(files))
			s.daemon.kill()
		})
	}
}

// TestWrongLogOfAWaitingOperation replaces the log of a waiting operation by each kind of invalid file:
// readers see no log, and the log is created when the work starts.
func TestWrongLogOfAWaitingOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "wrong.yaml"), []byte(wrongJobs), 0o600))
	s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID), daemon: r.start()}
	defer s.daemon.kill()
	var err error
	s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, s.tree.Close()) }()
	for i, kind := range slices.Sorted(maps.Keys(strangeFiles)) {
		params := fmt.Sprintf(`{"n":%d}`, i)
		s.begin("holder", "sleep", params, statefs.Running)
		s.begin(kind, "sleep", params, statefs.Queued)
		must(t, strangeFiles[kind](s.yard, s.tree.LogPath(s.ids[kind])))
		of := "/api/v1/operations/" + s.ids[kind].String()
		if status, body := s.call("GET", of+"/log", ""); status != http.StatusOK || body != "" {
			t.Errorf("%s: the log: %d %q", kind, status, body)
		}
		follower := s.follow(of + "/stream")
		must(t, put(s.jobs(statefs.RequestName(s.ids["holder"], statefs.Cancel)), ""))
		follower.read("\nline\n")
		s.wait("it was moved to corrupt/", s.kept(s.ids[kind].String()+".log"))
		// why it waits is in front of the line, unless the holder ended before that was written
		if status, body := s.call("GET", of+"/log", ""); status != http.StatusOK || !strings.HasSuffix("\n"+body, "\nline\n") {
			t.Errorf("%s: the log of its work: %d %q", kind, status, body)
		}
	}
	if log := s.daemon.stderr.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the daemon logged an error: %s", log)
	}
}

// TestRetryBesideAWrongItemFile replaces the item results of a failed operation by each kind of invalid file.
// Its retry has the same effect as without the file.
func TestRetryBesideAWrongItemFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "fails.yaml"), []byte(`
group: w
name: fails
unique: {on_hit: off}
items: {range: [1, 2]}
fail_when: any
run: [sh, -c, 'exit 3']
`), 0o600))
	s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID), daemon: r.start()}
	defer s.daemon.kill()
	var err error
	s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, s.tree.Close()) }()
	for _, kind := range slices.Sorted(maps.Keys(strangeFiles)) {
		s.begin(kind, "fails", "{}", statefs.Failed)
		file := s.tree.ItemsPath(s.ids[kind])
		must(t, errors.Join(os.Remove(file), strangeFiles[kind](s.yard, file)))
		if status, body := s.call("POST", "/api/v1/operations/"+s.ids[kind].String()+"/retry", ""); status >= 300 {
			t.Errorf("%s: %d %s", kind, status, body)
		}
		s.wait("it was moved to corrupt/", s.kept(filepath.Base(file)))
	}
}

// TestWrongItemFileDuringARun replaces the item results of a running operation by each kind of invalid file. The file
// goes to corrupt/ with one line in the log, and the run ends with all of its results.
func TestWrongItemFileDuringARun(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	gate := filepath.Join(t.TempDir(), "gate")
	must(t, unix.Mkfifo(gate, 0o600))
	must(t, os.WriteFile(filepath.Join(r.jobs, "gated.yaml"), []byte(`
group: w
name: gated
unique: {on_hit: off}
items: {range: [1, 2]}
run: [sh, -c, '[ "$1" = 1 ] || read -r line <`+gate+`', sh, "${item}"]
`), 0o600))
	s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID), daemon: r.start()}
	defer s.daemon.kill()
	var err error
	s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, s.tree.Close()) }()
	results := func(file string, want int) outcome {
		return func() error {
			if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() { // reading a device may have no end
				return fmt.Errorf("%s is no regular file: %w", file, err)
			}
			data, err := os.ReadFile(file)
			if got := strings.Count(string(data), "\n"); err != nil || got != want {
				return fmt.Errorf("%d item results, want %d: %w", got, want, err)
			}
			return nil
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(strangeFiles)) {
		s.begin(kind, "gated", "{}", statefs.Running)
		file := s.tree.ItemsPath(s.ids[kind])
		s.wait("the first item has its result", results(file, 1))
		must(t, errors.Join(os.Remove(file), strangeFiles[kind](s.yard, file)))
		must(t, os.WriteFile(gate, []byte("go on\n"), 0o600)) // blocks until the second item reads
		if footer, err := s.daemon.Wait(t.Context(), s.ids[kind]); err != nil || footer.Result != statefs.Success {
			t.Errorf("%s: it ended with %+v, %v", kind, footer, err)
		}
		if err := errors.Join(results(file, 2)(), s.kept(filepath.Base(file))()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		lines := func() int { return strings.Count(s.daemon.stderr.String(), filepath.Base(file)) }
		s.wait("the log names the file", func() error { // its pipe may be behind the answer
			if lines() == 0 {
				return errors.New("it does not")
			}
			return nil
		})
		if lines() != 1 {
			t.Errorf("%s: %d lines in the log name the file, want 1", kind, lines())
		}
	}
}

// TestWrongRecordOfAnEndedOperation replaces the records of ended operations by each kind of invalid file. A GET
// answers with what the index knows, and a DELETE deletes the operation, also without a GET before it.
func TestWrongRecordOfAnEndedOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "wrong.yaml"), []byte(wrongJobs), 0o600))
	s := &wrongSite{yard: &yard{t: t, dir: r.dir}, ids: make(map[string]statefs.ID), daemon: r.start()}
	defer s.daemon.kill()
	var err error
	s.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, s.tree.Close()) }()
	begin := func(name, kind string) (statefs.ID, string) {
		s.begin(name+kind, "lines", "{}", statefs.Completed)
		id := s.ids[name+kind]
		// The end is on its way to the index before the marker goes, and a list waits for what is on its way.
		s.wait("its marker is gone", s.gone(s.jobs(statefs.MarkerName(id, statefs.Running))))
		s.call("GET", "/api/v1/operations?status=completed&limit=1", "")
		awaitFile(t, s.tree, id, `"status":"completed"`)
		must(t, errors.Join(os.Remove(s.record(id)), strangeFiles[kind](s.yard, s.record(id))))
		if kind == "folder" {
			must(t, put(filepath.Join(s.record(id), "note"), "a note"))
		}
		return id, "/api/v1/operations/" + id.String()
	}
	gone := func(id statefs.ID, path, kind string) {
		if status, body := s.call("DELETE", path, ""); status != http.StatusNoContent {
			t.Errorf("%s: DELETE: %d %s", kind, status, body)
		}
		if status, body := s.call("GET", path, ""); status != http.StatusGone {
			t.Errorf("%s: GET after it: %d %s", kind, status, body)
		}
		if left, _ := filepath.Glob(strings.TrimSuffix(s.record(id), "json") + "*"); len(left) > 0 {
			t.Errorf("%s: DELETE left %q", kind, left)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(strangeFiles)) {
		id, path := begin("shown", kind)
		known := func() error {
			var shown struct{ State, Status, Result, Job, Problem string }
			status, body := s.call("GET", path, "")
			if err := json.Unmarshal([]byte(body), &shown); err != nil || status != http.StatusOK ||
				shown.State != "completed" || shown.Status != "completed" || shown.Result != "success" || shown.Job != "lines" ||
				!strings.Contains(shown.Problem, id.String()+".json") || !strings.Contains(shown.Problem, "the index") {
				return fmt.Errorf("%d %s, %w", status, body, err)
			}
			return nil
		}
		if err := known(); err != nil {
			t.Errorf("%s: GET: %v", kind, err)
		}
		s.wait("it was moved to corrupt/", s.kept(id.String()+".json"))
		if err := known(); err != nil {
			t.Errorf("%s: GET without a record: %v", kind, err)
		}
		gone(id, path, kind)
		id, path = begin("deleted", kind)
		gone(id, path, kind)
		s.wait("it was moved to corrupt/ by DELETE", s.kept(id.String()+".deleted"))
	}
}

// stream is an open response body.
type stream struct {
	*wrongSite
	body io.Reader
	text strings.Builder
}

// follow opens a stream.
func (s *wrongSite) follow(path string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.daemon.Address()+path, nil)
	must(s.t, err)
	answer, err := http.DefaultClient.Do(req)
	must(s.t, err)
	s.t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s", path, answer.Status)
	}
	return &stream{wrongSite: s, body: answer.Body}
}

// read returns when a text has arrived.
func (s *stream) read(text string) {
	s.t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(s.text.String(), text) {
		n, err := s.body.Read(buf)
		s.text.Write(buf[:n])
		if err != nil {
			s.t.Fatalf("the stream ended without %q: %q, %v", text, s.text.String(), err)
		}
	}
}
