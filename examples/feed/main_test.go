package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
)

// programs builds the daemon and the consumer, and returns their folder.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin+"/", "../..", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, whose compiled packages it finds in the cache
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(readme)
	if script == nil {
		t.Fatal("README.md has no commands")
	}
	jobs, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", string(script[1]))
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PATH="+programs(t)+":"+os.Getenv("PATH"), "JOBS="+jobs)
	cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, 5*time.Second
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // what a script leaves that failed
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	lines := strings.Fields(string(out))
	if err != nil || len(lines) < 2 || lines[len(lines)-2] != "20" || lines[len(lines)-1] != "0" {
		t.Fatalf("%v\n%s\n%s", err, out, talk.String())
	}
}

// process is a program that is killed and started again.
type process struct {
	t    *testing.T
	name string
	args []string
	cmd  *exec.Cmd
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.name, p.args...)
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) end(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	err := p.cmd.Wait()
	if exit, killed := errors.AsType[*exec.ExitError](err); err != nil && !(killed && exit.ExitCode() == -1) {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// Consumer and daemon are killed repeatedly while operations end. The ledger contains every accepted
// operation once.
func TestEachEndOnceThroughKills(t *testing.T) {
	t.Parallel()
	bin, dir := programs(t), t.TempDir()
	storage, ends := filepath.Join(dir, "storage"), filepath.Join(dir, "ends.ndjson")
	server := "unix:" + filepath.Join(storage, "jobdir.sock")
	daemon := &process{t: t, name: bin + "/jobdir", args: []string{
		"serve", "--storage", storage, "--jobs", ".",
		"--listen", "127.0.0.1:0",
	}}
	consumer := &process{t: t, name: bin + "/feed", args: []string{"-server", server, "-ledger", ends}}
	c, err := client.New(server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted := make(map[string]bool)
	daemon.start()
	consumer.start()
	const rounds, each = 6, 12
	for round := range rounds {
		var last string
		for i := range each {
			last = submitPatiently(t, c, round*each+i)
			accepted[last] = true
		}
		// At some moment of the work: how far it is depends on the machine.
		if round%2 == 0 {
			daemon.end(syscall.SIGKILL)
			daemon.start()
		}
		consumer.end(syscall.SIGKILL)
		consumer.start()
		if round == rounds-1 {
			awaitLine(t, ends, last)
		}
	}
	for id := range accepted {
		awaitLine(t, ends, id)
	}
	consumer.end(syscall.SIGTERM)
	daemon.end(syscall.SIGTERM)
	seen := make(map[string]int)
	before := uint64(0)
	for _, l := range readLedger(t, ends) {
		seen[l.ID]++
		if l.FinishedSeq <= before {
			t.Errorf("number %d comes after %d", l.FinishedSeq, before)
		}
		before = l.FinishedSeq
	}
	for id := range accepted {
		if seen[id] != 1 {
			t.Errorf("%s stands there %d times", id, seen[id])
		}
	}
	if len(seen) != len(accepted) {
		t.Errorf("%d operations in the ledger, %d were accepted", len(seen), len(accepted))
	}
}

// submitPatiently submits until a daemon accepts. A daemon that was killed may have accepted without an
// answer, so the same submit may be repeated; it returns the same operation while that is live.
func submitPatiently(t *testing.T, c *client.Client, n int) string {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		op, err := c.Submit(t.Context(), "demo", "work", map[string]int{"n": n})
		if err == nil {
			return op.ID.String()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func awaitLine(t *testing.T, path, id string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), id) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come: %v\n%s", id, err, data)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func readLedger(t *testing.T, path string) (lines []line) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%q: %v", in.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines
}

// What a consumer leaves that dies in the middle of a line has not happened.
func TestATornLineHasNotHappened(t *testing.T) {
	t.Parallel()
	whole := `{"finished_seq":7,"id":"a","job":"g/j","state":"completed"}` + "\n"
	for torn, want := range map[string]uint64{"": 0, whole: 7, whole + `{"finished_seq":8,"i`: 7, `{"fin`: 0} {
		// another one each time: a process that is being started elsewhere may hold the lock a little longer
		path := filepath.Join(t.TempDir(), "ends.ndjson")
		if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := openLedger(path)
		if err != nil || l.last != want {
			t.Fatalf("%q: %+v, %v", torn, l, err)
		}
		if _, err := openLedger(path); err == nil {
			t.Error("a second consumer is let in")
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || strings.HasPrefix(whole, string(data)) != (len(data) == 0 ||
			string(data) == whole) {
			t.Errorf("%q: left is %q, %v", torn, data, err)
		}
	}
	path := filepath.Join(t.TempDir(), "ends.ndjson")
	if err := os.WriteFile(path, []byte("notes of mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openLedger(path); err == nil || !strings.Contains(err.Error(), "is not one of this program") {
		t.Errorf("a file of somebody else: %v", err)
	}
}
