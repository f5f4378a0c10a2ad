package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/internal/browsertest"
)

// pageJobs are what the tests of the page start. DIR is a folder of the test, in which fifos hold work back until the
// test writes to them.
const pageJobs = `
group: g
name: held
params: {title: {type: string, default: none}}
unique: {on_hit: off}
run: [sh, -c, 'echo "[ 1 / 3 ] begun ${params.title}"; read line < DIR/first; echo "$line"; read line < DIR/second; echo "$line"']
---
group: g
name: long
unique: {on_hit: off}
run: [sh, -c, 'seq -f "line %.0f of the long log" 1 20000; read line < DIR/long']
---
group: g
name: forever
unique: {on_hit: off}
lane: narrow
run: [sleep, "600"]
---
group: g
name: stubborn
unique: {on_hit: off}
grace: 1h
run: [sh, -c, 'trap "" TERM; echo begun; while :; do sleep 600; done']
---
group: g
name: mended
unique: {on_hit: off}
steps:
  - {name: look, run: [sh, -c, 'test -e DIR/mended || { echo "<b>no</b> file"; exit 77; }']}
  - {name: publish, needs: [look], approve: true, run: [echo, published]}
---
group: g
name: aside
unique: {on_hit: off}
steps:
  - {name: cut, run: [echo, cut]}
  - {name: shelve, optional: true, run: [sh, -c, 'test -e DIR/shelf || { echo no shelf; exit 78; }']}
---
group: g
name: delivered
unique: {on_hit: off}
deliver: [{folder: {path: DIR/results}}]
run: [echo, done]
`

// pageRig is a daemon behind an address that stays when the daemon is killed and started again.
type pageRig struct {
	t       *testing.T
	dir     string // the folder of the fifos
	storage string
	address string // host:port for the browser
	args    []string
	token   string

	mu     sync.Mutex
	daemon string // host:port of the daemon that runs, "" while none does
	cmd    *exec.Cmd
}

// newPageRig starts a daemon, which requires the token unless it is "".
func newPageRig(t *testing.T, token string) *pageRig {
	t.Helper()
	r := &pageRig{t: t, dir: t.TempDir(), token: token}
	r.storage = filepath.Join(r.dir, "storage")
	jobs := filepath.Join(r.dir, "jobs")
	config := filepath.Join(r.dir, "jobdir.yaml")
	r.args = []string{
		"serve", "--config", config, "--storage", r.storage, "--jobs", jobs,
		"--listen", "127.0.0.1:0", "--hosts", "jobs.test",
	}
	errs := []error{
		os.Mkdir(jobs, 0o750),
		os.WriteFile(filepath.Join(jobs, "jobs.yaml"), []byte(strings.ReplaceAll(pageJobs, "DIR", r.dir)), 0o600),
		os.WriteFile(config, []byte("lanes: {narrow: {capacity: 1}}\n"), 0o600),
	}
	for _, fifo := range []string{"first", "second", "long"} {
		errs = append(errs, syscall.Mkfifo(filepath.Join(r.dir, fifo), 0o600))
	}
	if token != "" {
		file := filepath.Join(r.dir, "tokens")
		errs = append(errs, os.WriteFile(file, []byte("anna:"+token+"\n"), 0o600))
		r.args = append(r.args, "--token-file", file)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endKeepers(t, r.storage) })
	t.Cleanup(func() { r.stop(syscall.SIGTERM) })
	r.start()
	r.forward()
	return r
}

// start starts a daemon and waits until it serves.
func (r *pageRig) start() {
	r.t.Helper()
	talk := newScreen()
	cmd := exec.Command("jobdir", r.args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = talk
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.cmd = cmd
	r.mu.Unlock()
	talk.waitFor(r.t, "jobdir: serving", 1)
	found := regexp.MustCompile(`serving http://([\d.:]+)`).FindStringSubmatch(talk.text())
	if found == nil {
		r.t.Fatalf("no address in %s", talk.text())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.daemon = found[1]
}

// stop ends the daemon, if one runs.
func (r *pageRig) stop(signal syscall.Signal) {
	r.mu.Lock()
	cmd := r.cmd
	r.cmd, r.daemon = nil, ""
	r.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Signal(signal) // it may have ended
		_ = cmd.Wait()                 // a kill is no error here
	}
}

// forward passes connections on to the daemon that runs. A port that a killed daemon had could be another program's
// before the next one has it.
func (r *pageRig) forward() {
	listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = listener.Addr().String()
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	over := false
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			to := r.daemon
			r.mu.Unlock()
			far, err := net.Dial("tcp", to) //nolint:noctx // it ends with the connection
			if err != nil {
				_ = near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			if over {
				_ = errors.Join(near.Close(), far.Close())
			}
			mu.Unlock()
			pass := func(into, from net.Conn) {
				_, _ = io.Copy(into, from) // either side may go at any time
				_ = errors.Join(into.Close(), from.Close())
			}
			all.Go(func() { pass(far, near) })
			all.Go(func() { pass(near, far) })
		}
	})
	r.t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		over = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
}

// post sends a request to the daemon and returns its answer.
func (r *pageRig) post(path, body string) (answer map[string]any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.address+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil || resp.StatusCode >= 300 {
		r.t.Fatalf("POST %s: %d %s %v", path, resp.StatusCode, data, err)
	}
	return answer
}

// submit starts an operation and returns its ID.
func (r *pageRig) submit(job, params string) string {
	r.t.Helper()
	id, ok := r.post("/g/"+job, params)["id"].(string)
	if !ok {
		r.t.Fatalf("no ID in the answer to a submit of %s", job)
	}
	return id
}

// tell writes a line to a fifo as soon as the work reads from it.
func (r *pageRig) tell(fifo, line string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, fifo), []byte(line+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// open opens the page at a view.
func (r *pageRig) open(b *browsertest.Browser, view string) *browsertest.Page {
	r.t.Helper()
	p := b.Page(r.t)
	p.Open("http://" + r.address + "/ui/" + view)
	return p
}

// row finds an operation in the lists, act a button in its row, and open and openAct the same where it is open.
func row(id string) string { return fmt.Sprintf(`document.querySelector('.row[data-key="%s"]')`, id) }

func act(id, name string) string {
	return row(id) + fmt.Sprintf(`.querySelector('[data-act="%s"]')`, name)
}

func open(id string) string { return fmt.Sprintf(`document.querySelector('.pane[data-key="%s"]')`, id) }

func openAct(id, name string) string {
	return open(id) + fmt.Sprintf(`.querySelector('[data-act="%s"]')`, name)
}

// is is a condition: the lists contain the operation with this state.
func is(id, state string) string { return row(id) + fmt.Sprintf(`.dataset.state === %q`, state) }

// says is a condition: an element shows this text.
func says(element, text string) string {
	return element + fmt.Sprintf(`.textContent.includes(%q)`, text)
}

const (
	confirm = `document.querySelector('dialog[open] [data-act="confirm"]')`
	live    = `document.querySelector('#line.live')`
)

// quiet checks that the page complained of nothing: no exception, nothing on the console, no violation of its policy.
// Answers that are errors may be expected.
func quiet(t *testing.T, p *browsertest.Page, errorsExpected bool) {
	t.Helper()
	problems := p.Problems()
	if errorsExpected {
		problems = slices.DeleteFunc(problems, func(text string) bool { return strings.HasPrefix(text, "network:") })
	}
	if len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}
