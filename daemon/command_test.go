package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

const commandJobs = `
group: test
name: script
params:
  script: {type: string, required: true}
  title: {type: string, default: "a b; $(c)"}
env: {FLAVOUR: "${params.title}"}
run: [sh, -c, "${params.script}"]
grace: 300ms
---
group: test
name: argv
params: {title: {type: string, default: "a b; $(echo c) 'd'"}}
run: [printf, "%s|", "${params.title}", "${id}", "${HOME}", "$X"]
---
group: test
name: chatty
max_log: 64KiB
run: [sh, -c, "while :; do echo 0123456789012345678901234567890123456789; done"]
---
group: test
name: missing
run: [no-such-program-anywhere]
`

func script(text string) string {
	data, _ := json.Marshal(map[string]string{"script": text})
	return string(data)
}

func TestCommandEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	for _, tc := range []struct {
		name, job, params string
		status            statefs.State
		code, log         string
	}{
		{"well", "script", script("echo out; echo err >&2"), statefs.Completed, "", "out\nerr\n"},
		{"with a code", "script", script("echo x; exit 3"), statefs.Failed, "exit_code", "x\n  ERROR: exit code 3\n"},
		{"by a signal", "script", script("kill -9 $$"), statefs.Failed, "signal", "  ERROR: ended by SIGKILL\n"},
		{
			"in the middle of a line", "script", script("printf half; exit 1"), statefs.Failed, "exit_code",
			"half\n  ERROR: exit code 1\n",
		},
		{
			"with a result that is none", "script", script(`echo '{"a":' > $JOBDIR_RESULT`), statefs.Failed, "bad_result",
			"  ERROR: the result is not one JSON object: unexpected end of JSON input\n",
		},
		{
			"with a fifo as result", "script", script("mkfifo $JOBDIR_RESULT"), statefs.Failed, "bad_result",
			"  ERROR: read the result: result.json is not a regular file\n",
		},
		{"reading nothing", "script", script("cat; echo end"), statefs.Completed, "", "end\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := b.submit(tc.job, tc.params)
			rec := b.awaitEnd(id)
			if rec.Status != tc.status || (rec.Error == nil) != (tc.code == "") ||
				(rec.Error != nil && rec.Error.Code != tc.code) {
				t.Errorf("status %s, error %+v", rec.Status, rec.Error)
			}
			if got := b.log(id); got != tc.log {
				t.Errorf("log %q, want %q", got, tc.log)
			}
			if *rec.LogBytes != int64(len(tc.log)) {
				t.Errorf("log_bytes %d", *rec.LogBytes)
			}
		})
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	rec := b.awaitEnd(b.submit("missing", `{}`))
	if rec.Status != statefs.Failed || rec.Error.Code != "start_failed" || !strings.Contains(rec.Error.Message,
		"no-such-program-anywhere") {
		t.Errorf("%s %+v", rec.Status, rec.Error)
	}
}

func TestCommandSeesItsArgumentsAndEnvironment(t *testing.T) {
	t.Parallel()
	b := prepare(t, commandJobs, nil)
	b.config.Environ = func() []string { return append(os.Environ(), "JOBDIR_TOKEN_FILE=/secret", "PLAIN=yes") }
	b.start()
	id := b.submit("argv", `{}`)
	b.awaitEnd(id)
	if got, want := b.log(id), "a b; $(echo c) 'd'|"+id.String()+"|${HOME}|$X|"; got != want {
		t.Errorf("arguments %q, want %q", got, want)
	}
	id = b.submit("script", script(`cat $JOBDIR_PARAMS; env | grep -E '^(JOBDIR|PLAIN|FLAVOUR|PYTHONUNB)' | sort
		echo kept > $JOBDIR_ARTIFACTS/a.txt; echo '{"pages": 7, "title": "<log>"}' > $JOBDIR_RESULT; echo "3 9 reading on" >> $JOBDIR_PROGRESS`))
	rec := b.awaitEnd(id)
	log := b.log(id)
	for _, want := range []string{
		"JOBDIR_ID=" + id.String() + "\n", "JOBDIR_RUN=1\n", "JOBDIR_STORAGE=" + b.dir + "\n",
		"JOBDIR_PARAM_TITLE=a b; $(c)\n",
		"FLAVOUR=a b; $(c)\n", "PYTHONUNBUFFERED=1\n", "PLAIN=yes\n", `"title":"a b; $(c)"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	if strings.Contains(log, "/secret") {
		t.Error("a setting of the daemon was handed on")
	}
	var footer map[string]any
	if err := json.Unmarshal(rec.Footer, &footer); err != nil {
		t.Fatal(err)
	}
	if footer["pages"] != 7.0 || footer["title"] != "<log>" || footer["exit_code"] != 0.0 {
		t.Errorf("footer %s", rec.Footer)
	}
	if got, _ := json.Marshal(rec.Artifacts); string(got) != `["a.txt"]` {
		t.Errorf("artifacts %s", got)
	}
	p, err := b.tree.ReadProgress(id)
	if err != nil || p.Done != 3 || p.Total == nil || *p.Total != 9 || p.Phase != "reading on" {
		t.Errorf("progress %+v %v", p, err)
	}
	b.daemon.reconcileQueue.wait()
	if _, err := os.Stat(strings.TrimSuffix(b.tree.LogPath(id), ".log") + ".run"); !os.IsNotExist(err) {
		t.Errorf("the folder of the run is left: %v", err)
	}
}

func TestLogLimitEndsTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	rec := b.awaitEnd(b.submit("chatty", `{}`))
	if rec.Status != statefs.Failed || rec.Error.Code != "log_limit" {
		t.Errorf("%s %+v", rec.Status, rec.Error)
	}
}

// TestCancelEndsTheWholeTree cancels commands that resist: a process that ignores SIGTERM, a
// grandchild that keeps the log open, and a grandchild that left its session.
func TestCancelEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	for name, text := range map[string]string{
		"ignores SIGTERM":          `trap '' TERM; echo $$ > PIDS; echo up; while :; do sleep 1000; done`,
		"grandchild keeps the log": `(trap '' TERM; sh -c 'echo $PPID >> PIDS'; sleep 1000) & echo $$ >> PIDS; sleep 1000 & echo $! >> PIDS; echo up; exec sleep 1000`,
		"daemonised grandchild":    `setsid sh -c 'trap "" TERM; echo $$ >> PIDS; sleep 1000' < /dev/null & until [ -s PIDS ]; do sleep 0.01; done; echo up; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			id := b.submit("script", script(strings.ReplaceAll(text, "PIDS", pids)))
			b.await("it is up", func() bool {
				log, err := os.ReadFile(b.tree.LogPath(id))
				return err == nil && strings.HasPrefix(string(log), "up\n")
			})
			b.touch(id, statefs.Cancel)
			if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
				t.Errorf("status %s", rec.Status)
			}
			data, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			for pid := range strings.FieldsSeq(string(data)) {
				n, _ := strconv.Atoi(pid)
				environ, _ := os.ReadFile("/proc/" + pid + "/environ")
				if unix.Kill(n, 0) == nil && strings.Contains(string(environ), id.String()) {
					t.Errorf("process %s is alive", pid)
				}
			}
			b.wantLog(id, "up", lineCancel)
		})
	}
}

func TestPausedCommandIsStopped(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	id := b.submit("script", script("echo $$; exec sleep 1000"))
	b.await("it is up", func() bool {
		log, err := os.ReadFile(b.tree.LogPath(id))
		return err == nil && strings.Contains(string(log), "\n")
	})
	pid := strings.TrimSpace(b.log(id))
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	// SIGSTOP is pending at once and takes effect when the process next runs, perhaps later on a
	// busy machine.
	b.poll("the process is stopped", func() bool { return processState(t, pid) == "T" })
	b.touch(id, statefs.Resume)
	b.awaitState(id, statefs.Running)
	b.daemon.reconcileQueue.wait()
	if got := processState(t, pid); got == "T" {
		t.Error("the process is still stopped")
	}
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
	b.wantLog(id, pid, linePause, lineResume, linePause, lineCancelPaused)
}

func processState(t *testing.T, pid string) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// An exit before the cancel counts: the work was done, and only the processes that it left behind
// had to be ended.
func TestCancelDuringLeftoversKeepsTheExit(t *testing.T) {
	t.Parallel()
	b := setup(t, strings.ReplaceAll(commandJobs, "grace: 300ms", "grace: 60s"), nil)
	id := b.submit("script",
		script(`(trap "" TERM; touch $JOBDIR_ARTIFACTS/deaf; while :; do sleep 0.05; done) & until test -e $JOBDIR_ARTIFACTS/deaf; do sleep 0.01; done; echo $$`))
	b.await("the leader has ended", func() bool {
		b.poke()
		log, err := os.ReadFile(b.tree.LogPath(id))
		if err != nil || !strings.HasSuffix(string(log), "\n") {
			return false
		}
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(log)) + "/stat")
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
	b.touch(id, statefs.Cancel)
	b.await("the cancel is taken", func() bool { return strings.Contains(b.log(id), "Cancel requested") })
	_, err := keeper.EndMarked(t.Context(), []string{"JOBDIR_ID=" + id.String(), b.daemon.owner.Mark()}, time.Millisecond)
	must(t, err)
	rec := b.awaitEnd(id)
	if rec.Status != statefs.Completed || rec.Result != statefs.Success || rec.ExitCode == nil || *rec.ExitCode != 0 {
		t.Errorf("status %s, result %s, exit code %v", rec.Status, rec.Result, rec.ExitCode)
	}
}
