package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// What these tests see is what clients see: answers, and a file to which the commands themselves append when they run.

const orderConfig = `
lanes:
  one: {capacity: 1}
  two: {capacity: 2}
  wide: {capacity: 64}
  left: {capacity: 4}
  right: {capacity: 4}
limits: {tool: 2}
`

const orderJobs = `
group: g
name: stay
params: {lane: {type: string, default: none}, n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: two
run: [sleep, "600"]
---
group: g
name: named
run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]
---
group: g
name: wide
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: wide
run: [sleep, "600"]
---
group: g
name: left
unique: {on_hit: off}
lane: left
limits: [tool]
run: [sleep, "600"]
---
group: g
name: right
unique: {on_hit: off}
lane: right
limits: [tool]
run: [sleep, "600"]
---
group: g
name: first
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: one
key: k
run: [sh, -c, 'echo "$1" >> "$2"', sh, "${params.n}", TRACE]
---
group: g
name: then
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: wide
key: k
run: [sh, -c, 'echo "$1" >> "$2"', sh, "${params.n}", TRACE]
---
group: g
name: any
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: one
key: any
key_order: any
run: [sh, -c, 'echo "$1" >> "$2"', sh, "${params.n}", TRACE]
---
group: g
name: anywide
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: wide
key: any
key_order: any
run: [sh, -c, 'echo "$1" >> "$2"', sh, "${params.n}", TRACE]
---
group: g
name: urgent
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: one
key: urgent
key_order: priority
run: [sh, -c, 'echo "$1" >> "$2"', sh, "${params.n}", TRACE]
---
group: g
name: again
unique: {on_hit: off}
lane: wide
key: k
retry: {max_attempts: 2, initial: 1h}
exit_codes: {retryable: [1]}
run: [sh, -c, 'exit 1']
---
group: g
name: person
unique: {on_hit: off}
lane: wide
key: k
exit_codes: {manual: [1]}
run: [sh, -c, 'exit 1']
---
group: g
name: gate
unique: {on_hit: off}
key: k
steps: [{name: gate, approve: true}]
`

// orderServer is a daemon of a process of its own.
type orderServer struct {
	*testing.T
	url, storage, trace string
	args                []string
	cmd                 *exec.Cmd
	talk                *screen
}

func serveOrder(t *testing.T) *orderServer {
	t.Helper()
	return serveOrderAt(t, filepath.Join(t.TempDir(), "storage"), orderJobs)
}

func serveOrderAt(t *testing.T, storage, definitions string, flags ...string) *orderServer {
	t.Helper()
	dir := t.TempDir()
	s := &orderServer{T: t, storage: storage, trace: filepath.Join(dir, "trace")}
	jobs, config := filepath.Join(dir, "jobs"), filepath.Join(dir, "jobdir.yaml")
	definitions = strings.ReplaceAll(definitions, "TRACE", strconv.Quote(s.trace))
	s.must(os.Mkdir(jobs, 0o750))
	s.must(os.WriteFile(filepath.Join(jobs, "jobs.yaml"), []byte(definitions), 0o600))
	s.must(os.WriteFile(config, []byte(orderConfig), 0o600))
	s.args = []string{"serve", "--storage", s.storage, "--jobs", jobs, "--config", config, "--listen", "127.0.0.1:0"}
	s.args = append(s.args, flags...)
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // if it has ended, Wait returns its status
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("daemon: %v\n%s", err, s.talk.text())
			}
		}
		endKeepers(t, s.storage)
	})
	s.start()
	return s
}

// start starts the daemon and returns when it serves.
func (s *orderServer) start() {
	s.Helper()
	s.cmd = exec.Command("jobdir", s.args...)
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	s.talk = newScreen()
	s.cmd.Stderr = s.talk
	s.must(s.cmd.Start())
	s.talk.waitFor(s.T, "jobdir: serving", 1)
	found := regexp.MustCompile(`serving (http://[\d.:]+)`).FindStringSubmatch(s.talk.text())
	if found == nil {
		s.Fatalf("no address in %s", s.talk.text())
	}
	s.url = found[1]
}

// kill ends the daemon with SIGKILL.
func (s *orderServer) kill() {
	s.Helper()
	s.must(s.cmd.Process.Kill())
	_ = s.cmd.Wait() // its status says that it was killed
}

func (s *orderServer) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// call sends a request and decodes the answer into out, unless that is nil.
func (s *orderServer) call(method, path string, body, out any) {
	s.Helper()
	var data []byte
	if body != nil {
		var err error
		data, err = json.Marshal(body)
		s.must(err)
	}
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, bytes.NewReader(data))
	s.must(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	s.must(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	s.must(err)
	if resp.StatusCode >= 300 {
		s.Fatalf("%s %s: %s\n%s", method, path, resp.Status, answer)
	}
	if out != nil {
		s.must(json.Unmarshal(answer, out))
	}
}

type orderEntry map[string]any

func (s *orderServer) submit(job string, n int, more ...orderEntry) (id string) {
	s.Helper()
	var out struct{ ID string }
	s.call(http.MethodPost, "/api/v1/operations", entryOf(job, n, more...), &out)
	return out.ID
}

func entryOf(job string, n int, more ...orderEntry) orderEntry {
	e := orderEntry{"job": "g/" + job}
	if n > 0 {
		e["params"] = orderEntry{"n": n}
	}
	for _, m := range more {
		maps.Copy(e, m)
	}
	return e
}

func (s *orderServer) submitList(entries []orderEntry) (ids []string) {
	s.Helper()
	var out struct{ Operations []struct{ ID string } }
	s.call(http.MethodPost, "/api/v1/operations", entries, &out)
	for _, o := range out.Operations {
		ids = append(ids, o.ID)
	}
	return ids
}

type shownOperation struct {
	ID       string        `json:"id"`
	Status   statefs.State `json:"status"`
	Priority int           `json:"priority"`
	Waiting  *struct {
		Reason string `json:"reason"`
		HeldBy string `json:"held_by"`
	} `json:"waiting"`
	StartedAt *time.Time `json:"started_at"`
}

func (s *orderServer) show(id string) (o shownOperation) {
	s.Helper()
	s.call(http.MethodGet, "/api/v1/operations/"+id, nil, &o)
	return o
}

// markers are the operations in a state by the names in jobs/.
func (s *orderServer) markers(state statefs.State) (ids []string) {
	s.Helper()
	found, err := filepath.Glob(filepath.Join(s.storage, "jobs", "*."+string(state)))
	s.must(err)
	for _, file := range found {
		ids = append(ids, strings.TrimSuffix(filepath.Base(file), "."+string(state)))
	}
	return ids
}

func (s *orderServer) awaitState(id string, state statefs.State) {
	s.Helper()
	until(s.T, id+" is "+string(state), func() bool { return slices.Contains(s.markers(state), id) })
}

func (s *orderServer) awaitRunning(count int) []string {
	s.Helper()
	until(s.T, fmt.Sprint(count, " run"), func() bool { return len(s.markers(statefs.Running)) == count })
	return s.markers(statefs.Running)
}

// awaitTrace waits until so many commands have run, and returns their numbers in that order.
func (s *orderServer) awaitTrace(count int) (numbers []int) {
	s.Helper()
	read := func() bool {
		data, err := os.ReadFile(s.trace)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Fatal(err)
		}
		numbers = numbers[:0]
		for line := range strings.FieldsSeq(string(data)) {
			n, err := strconv.Atoi(line)
			s.must(err)
			numbers = append(numbers, n)
		}
		return len(numbers) >= count
	}
	until(s.T, fmt.Sprint(count, " have run"), read)
	return numbers
}

func (s *orderServer) wantTrace(what string, want ...int) {
	s.Helper()
	if got := s.awaitTrace(len(want)); !slices.Equal(got, want) {
		s.Errorf("%s: they ran in the order %v, want %v", what, got, want)
	}
	s.forgetTrace()
}

func (s *orderServer) forgetTrace() {
	if err := os.Remove(s.trace); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Fatal(err)
	}
}

// clear cancels all that lives.
func (s *orderServer) clear() {
	s.Helper()
	for _, state := range statefs.LiveStates() {
		for _, id := range s.markers(state) {
			_ = os.WriteFile(filepath.Join(s.storage, "jobs", id+".cancel_requested"), nil, 0o600)
		}
	}
	until(s.T, "nothing lives", func() bool {
		entries, err := os.ReadDir(filepath.Join(s.storage, "jobs"))
		s.must(err)
		return len(entries) == 0
	})
}

func sequenceOf(t *testing.T, id string) uint64 {
	t.Helper()
	parsed, err := statefs.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Sequence()
}

func oneTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i+1)
	}
	return numbers
}
