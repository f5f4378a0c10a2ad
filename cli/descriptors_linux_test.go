package cli_test

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// handlerProgram is a program of a user: the whole of jobdir with handlers of its own.
const handlerProgram = "jobdir-handlers"

var handlers = work.Handlers{
	"nothing": {Run: func(context.Context, *work.Op) error { return nil }},
	// speak writes what comes through a named pipe to its log, until an empty text comes.
	"speak": {Run: func(_ context.Context, op *work.Op) error {
		pipe, _ := op.Params().Lookup("pipe")
		for {
			text, err := os.ReadFile(pipe.Text())
			if err != nil || len(text) == 0 {
				return err
			}
			op.Logf("%s", text)
		}
	}},
}

const descriptorJobs = `
group: t
name: nothing
unique: {on_hit: off}
handler: nothing
---
group: t
name: speak
params: {pipe: {type: string, required: true}}
handler: speak
---
group: t
name: sleep
unique: {on_hit: off}
run: [sh, -c, 'exec sleep 1000']
`

// limited is a daemon that may open a bounded number of files.
type limited struct {
	*client.Client
	t       *testing.T
	storage string
	said    *screen
}

func serveLimited(t *testing.T, limit int) *limited {
	t.Helper()
	jobs := t.TempDir()
	if err := os.WriteFile(filepath.Join(jobs, "jobs.yaml"), []byte(descriptorJobs), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &limited{t: t, storage: filepath.Join(t.TempDir(), "storage"), said: newScreen()}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", `ulimit -n "$0" && exec "$@"`,
		strconv.Itoa(limit),
		handlerProgram, "serve", "--storage", d.storage, "--jobs", jobs, "--listen", "127.0.0.1:0", "--grace", "1s",
		"--durability", "process")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = d.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.said.waitFor(t, "jobdir: serving", 1)
	var err error
	if d.Client, err = client.New("unix:" + filepath.Join(d.storage, "jobdir.sock")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.Bulk(context.WithoutCancel(t.Context()), "cancel", url.Values{"group": {"t"}}, nil); err != nil {
			t.Error(err)
		}
		d.Close()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	})
	return d
}

func (d *limited) until(what string, is func() bool) {
	d.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			d.t.Fatalf("waited in vain until %s; the daemon says:\n%s", what, d.said.text())
		}
	}
}

// count is how many operations have a status.
func (d *limited) count(status statefs.State) int {
	d.t.Helper()
	page, err := d.List(d.t.Context(), url.Values{"status": {string(status)}, "limit": {"0"}})
	if err != nil {
		d.t.Fatal(err)
	}
	return page.Total
}

func (d *limited) submit(job string, n int) []client.Submitted {
	d.t.Helper()
	list := make([]client.Submission, n)
	for i := range list {
		list[i] = client.Submission{Job: "t/" + job}
	}
	out, err := d.SubmitList(d.t.Context(), list)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// complaints are the lines that the daemon wrote about files that cannot be opened.
func (d *limited) complaints() (found []string) {
	for line := range strings.Lines(d.said.text()) {
		if strings.Contains(line, "too many open files") {
			found = append(found, line)
		}
	}
	return found
}

// A backlog of short work in the default lane, which has no bound, ends without an error, and work without a word
// leaves no log.
func TestBacklogWithFewDescriptors(t *testing.T) {
	t.Parallel()
	began := time.Now()
	d := serveLimited(t, 128)
	lists, each := prooftest.Count(2, 6, 6), 500
	for range lists {
		d.submit("nothing", each)
	}
	d.until("all have ended", func() bool { return d.count(statefs.Completed) == lists*each })
	most := 1 + int(time.Since(began).Minutes()) // running out of descriptors is logged once a minute
	if text := d.said.text(); strings.Contains(text, "level=ERROR") || len(d.complaints()) > most {
		t.Errorf("the daemon says:\n%s", text)
	}
	logs, err := filepath.Glob(filepath.Join(d.storage, "operations", "*", "*.log"))
	if err != nil || len(logs) > 0 {
		t.Errorf("%d logs of work that wrote nothing, %v", len(logs), err)
	}
}

// Work that keeps descriptors open starts as long as descriptors are free. The rest waits and publishes the
// reason, submits are accepted, and each end lets another operation start.
func TestStartsWaitForDescriptors(t *testing.T) {
	t.Parallel()
	d := serveLimited(t, 128)
	all := d.submit("sleep", 60)
	var waiting []statefs.ID
	d.until("all that can run do, and the others wait for descriptors", func() bool {
		waiting = waiting[:0]
		for _, op := range all {
			found, err := d.Operation(t.Context(), op.ID)
			if err != nil {
				t.Fatal(err)
			}
			if found.State != statefs.Queued {
				continue
			}
			if found.Waiting == nil || found.Waiting.Reason != statefs.WaitsForResources {
				return false
			}
			waiting = append(waiting, op.ID)
		}
		return len(waiting) > 0
	})
	if len(waiting) == len(all) {
		t.Error("none runs")
	}
	if _, err := d.Submit(t.Context(), "t", "sleep", nil); err != nil {
		t.Errorf("a submit while others wait for descriptors: %v", err)
	}
	if said := d.complaints(); len(said) != 1 || !strings.Contains(said[0], "level=WARN") ||
		!strings.Contains(said[0], "queued operations wait for free file descriptors") ||
		!strings.Contains(said[0], "the limit is 128, ") || !strings.Contains(said[0], "raise the limit (ulimit -n") {
		t.Errorf("the daemon says:\n%s", d.said.text())
	}
	began := waiting[0]
	for _, op := range all {
		if !slices.Contains(waiting, op.ID) {
			if _, err := d.Request(t.Context(), op.ID, statefs.Cancel, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.until("one that waited runs", func() bool {
		found, err := d.Operation(t.Context(), began)
		if err != nil {
			t.Fatal(err)
		}
		return found.State == statefs.Running
	})
}

// A reader that follows work which has written nothing, and so has no log yet, gets its first line when it comes.
func TestStreamBeforeTheFirstLine(t *testing.T) {
	t.Parallel()
	d := serveLimited(t, 1024)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	op, err := d.Submit(t.Context(), "t", "speak", map[string]string{"pipe": pipe})
	if err != nil {
		t.Fatal(err)
	}
	lines, writer := io.Pipe()
	followed := make(chan error, 1)
	go func() {
		_, err := d.Follow(t.Context(), op.ID, 0, writer)
		_ = writer.Close()
		followed <- err
	}()
	d.until("it is running", func() bool { return d.count(statefs.Running) == 1 })
	read := bufio.NewScanner(lines)
	for _, text := range []string{"first", "second"} {
		if err := os.WriteFile(pipe, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if !read.Scan() || read.Text() != text {
			t.Fatalf("read %q, %v", read.Text(), read.Err())
		}
	}
	if err := os.WriteFile(pipe, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil {
		t.Error(err)
	}
}
