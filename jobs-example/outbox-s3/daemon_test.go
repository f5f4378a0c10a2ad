package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var daemonBuilt build

// daemon is a real jobdir with the job of this folder.
type daemon struct {
	t   *testing.T
	url string
}

// newDaemon starts a daemon, which ends with the test.
func newDaemon(t *testing.T, env []string) *daemon {
	t.Helper()
	return newDaemonOn(t, ".", env)
}

// newDaemonOn starts a daemon on other definitions.
func newDaemonOn(t *testing.T, jobs string, env []string) *daemon {
	t.Helper()
	bin, err := daemonBuilt.get(func() (string, error) { return goBuild("../..", filepath.Join(programs, "jobdir")) })
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "serve", "--jobs", jobs, "--listen", "127.0.0.1:0", "--on-stop", "interrupt")
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Dir(program(t))+":"+os.Getenv("PATH"),
		"JOBDIR_STORAGE="+filepath.Join(t.TempDir(), "storage")), env...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said, d := bufio.NewReader(stderr), &daemon{t: t}
	for d.url == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("the daemon did not start: %v", err)
		}
		if m := regexp.MustCompile(`^jobdir: serving (http://[^ ,]+)`).FindStringSubmatch(line); m != nil {
			d.url = m[1]
		}
	}
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, said) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("the daemon: %v", err)
		}
	})
	return d
}

// ask sends a request and returns the answer, which has to be the expected one.
func (d *daemon) ask(method, path, body string, status int) string {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		d.t.Fatalf("%s %s: %s, %v, want %d\n%s", method, path, answer.Status, err, status, text)
	}
	return string(text)
}

// shownOperation is what the daemon says of an operation.
type shownOperation struct {
	ID       string
	State    string
	Result   string
	PID      int
	Run      int
	Progress struct {
		Done  int
		Phase string
	}
}

func (d *daemon) operation(text string) (op shownOperation) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(text), &op); err != nil {
		d.t.Fatalf("%v\n%s", err, text)
	}
	return op
}

// As an operation of jobdir the worker streams its log, stops while it is paused, continues, and is
// cancelled.
func TestAsAnOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := newDaemon(t, w.env())
	op := d.operation(d.ask("POST", "/detection/store", `{"minio_endpoint": "`+w.s3.addr+`", "minio_secure": false}`, 201))
	path := "/api/v1/operations/" + op.ID
	stream := follow(t, d.url+path+"/stream")
	stream.until("by a query every 1s, as there are no change streams")
	add := func(id string) {
		w.insert(w.outbox, waits(id))
		w.insert(w.source, entryOf(id, with(id)))
	}
	add("one")
	stream.until("Stored videos/detection/one.json")

	d.ask("POST", path+"/pause?wait=60s", "", 200)
	paused := d.operation(d.ask("GET", path, "", 200))
	stopped := until(func() error { // the signal is on its way: the last thread has to take it
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", paused.PID))
		if err == nil && !strings.Contains(string(stat), "(outbox-s3) T ") {
			err = fmt.Errorf("it does not stand still: %s", stat)
		}
		return err
	})
	if stopped != nil || paused.State != "paused" || paused.Progress.Phase != "follow" {
		t.Errorf("paused: %+v, %v", paused, stopped)
	}
	add("two")
	d.ask("POST", path+"/resume?wait=60s", "", 200)
	stream.until("Stored videos/detection/two.json")

	d.ask("POST", path+"/cancel?wait=60s", "", 200)
	said := stream.until("</end_json>")
	if ended := d.operation(d.ask("GET", path, "", 200)); ended.State != "cancelled" || ended.Progress.Done != 2 {
		t.Errorf("cancelled: %+v", ended)
	}
	for _, part := range []string{
		"Pause requested", "Resume requested", "Cancel requested", "Stopping: SIGTERM.",
		`"result": "cancelled"`, `"stored": 2`,
	} {
		if !strings.Contains(said, part) {
			t.Errorf("the stream lacks %q", part)
		}
	}
	if strings.Contains(said+d.ask("GET", path, "", 200), testSecret) {
		t.Error("the secret is in the stream or the record")
	}
	w.check("one", "videos", "detection/one.json")
	w.check("two", "videos", "detection/two.json")

	// A new one goes on where the other stopped; in mode once it ends by itself, and its exit code is the result.
	add("three")
	done := d.operation(d.ask("POST", "/detection/store?wait=60s", `{"mode": "once"}`, 201))
	if done.State != "completed" || done.Result != "success" || done.Progress.Done != 1 {
		t.Errorf("%+v", done)
	}
	w.check("three", "videos", "detection/three.json")
	w.insert(w.source, entryOf("lonely", with("lonely")))
	failed := d.operation(d.ask("POST", "/detection/store?wait=60s", `{"mode": "once"}`, 201))
	if failed.State != "failed" || !strings.Contains(d.ask("GET", "/api/v1/operations/"+failed.ID+"/log", "", 200),
		`ERROR: "lonely" is not stored`) {
		t.Errorf("%+v", failed)
	}
	if n, err := w.source.CountDocuments(t.Context(), bson.D{{Key: "status", Value: "predictable"}}); n != 4 ||
		err != nil {
		t.Errorf("the source has %d predictable entries, %v", n, err)
	}
}

// Two operations beside each other. A password in a parameter is refused before anything is kept.
func TestTwoWorkersAndNoPasswords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := newDaemon(t, w.env())
	for i := range 30 {
		w.insert(w.source, entryOf(i, with(i)))
		w.insert(w.outbox, waits(i))
	}
	first := d.operation(d.ask("POST", "/detection/store", `{"mode": "once"}`, 201))
	second := d.operation(d.ask("POST", "/detection/store?wait=60s", `{"mode": "once", "worker": 2}`, 201))
	if first.ID == second.ID || second.Result != "success" {
		t.Errorf("%+v", second)
	}
	if end := d.ask("GET", "/api/v1/operations/"+first.ID+"/stream", "", 200); !strings.Contains(end,
		`"result": "success"`) {
		t.Errorf("the first one:\n%s", end)
	}
	for i := range 30 {
		w.check(i, "videos", fmt.Sprintf("detection/%d.json", i))
	}
	d.ask("POST", "/detection/store", `{"mongo_uri": "mongodb://user:hunter2@h/"}`, 400)
	if kept := d.ask("GET", "/api/v1/operations", "", 200); !strings.Contains(kept, second.ID) ||
		strings.Contains(kept, "hunter2") {
		t.Errorf("what is kept: %s", kept)
	}
}

// reader follows a stream.
type reader struct {
	t     *testing.T
	lines *bufio.Reader
	said  strings.Builder
}

func follow(t *testing.T, url string) *reader {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &reader{t: t, lines: bufio.NewReader(answer.Body)}
}

// until reads to the line that has a text, and returns all that was read so far.
func (r *reader) until(part string) string {
	r.t.Helper()
	for !strings.Contains(r.said.String(), part) {
		line, err := r.lines.ReadString('\n')
		r.said.WriteString(line)
		if err != nil {
			r.t.Fatalf("%v before %q\n%s", err, part, r.said.String())
		}
	}
	return r.said.String()
}
