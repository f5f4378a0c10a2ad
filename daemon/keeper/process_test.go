//go:build linux

package keeper

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStopAndContinue(t *testing.T) {
	t.Parallel()
	ready := newFIFO(t)
	j := newJob(t, "-tell", ready.path, "-child", "-count -tell "+ready.path, "-count")
	p := j.start(t)
	pids := []int{ready.pid(t), ready.pid(t)}
	size := func() int { return len(j.output(t)) }
	for range 5 {
		for range 2 { // a second Stop does nothing
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		for _, pid := range pids {
			eventually(t, "stopped", func() bool { return state(t, pid) == 'T' })
		}
		before := size()
		if err := p.leader.signalGroup(0); err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			if s := state(t, pid); s != 'T' {
				t.Errorf("process %d is in state %c", pid, s)
			}
		}
		if after := size(); after != before {
			t.Errorf("output grew from %d to %d bytes while stopped", before, after)
		}
		if err := p.Continue(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "output goes on", func() bool { return size() > before })
	}
	p.End("enough")
	if e := wait(t, p); e.Signal != "SIGTERM" || e.Cause != "enough" || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
	if err := p.Stop(); !errors.Is(err, ErrEnded) {
		t.Errorf("Stop after the end: %v", err)
	}
	if err := p.Continue(); !errors.Is(err, ErrEnded) {
		t.Errorf("Continue after the end: %v", err)
	}
}

func TestStopRacesWithExit(t *testing.T) {
	t.Parallel()
	for range 50 {
		j := newJob(t)
		j.Args = []string{"/bin/true"}
		p := j.start(t)
		for {
			err := p.Stop()
			if errors.Is(err, ErrEnded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Continue(); err != nil && !errors.Is(err, ErrEnded) {
				t.Fatal(err)
			}
		}
		if e := wait(t, p); e.Code != 0 || e.Err != nil {
			t.Fatalf("exit is %+v", e)
		}
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		onTerm string
		stop   bool
		grace  time.Duration
		code   int
		signal string
		output string
	}{
		"polite":                {"7", false, longGrace, 7, "", "terminated\n"},
		"stopped and polite":    {"7", true, longGrace, 7, "", "terminated\n"},
		"by default":            {"", false, longGrace, -1, "SIGTERM", ""},
		"stopped, by default":   {"", true, longGrace, -1, "SIGTERM", ""},
		"ignores SIGTERM":       {"ignore", false, 20 * time.Millisecond, -1, "SIGKILL", ""},
		"stopped, ignores":      {"ignore", true, 20 * time.Millisecond, -1, "SIGKILL", ""},
		"no grace worth naming": {"ignore", false, 1, -1, "SIGKILL", ""},
	} {
		for mode, byPidfd := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				ready := newFIFO(t)
				j := newJob(t, "-on-term", c.onTerm, "-tell", ready.path, "-hang")
				j.Grace = c.grace
				p := j.startMode(t, byPidfd)
				ready.pid(t)
				if c.stop {
					if err := p.Stop(); err != nil {
						t.Fatal(err)
					}
				}
				p.End("test")
				p.End("a second cause is not heard")
				e := wait(t, p)
				if e.Code != c.code || e.Signal != c.signal || e.Cause != "test" || e.Err != nil {
					t.Errorf("exit is %+v", e)
				}
				if got := j.output(t); got != c.output {
					t.Errorf("output is %q, want %q", got, c.output)
				}
			})
		}
	}
}

func TestEndByMany(t *testing.T) {
	t.Parallel()
	ready := newFIFO(t)
	p := newJob(t, "-on-term", "3", "-tell", ready.path, "-hang").start(t)
	ready.pid(t)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { p.End("many") })
		wg.Go(func() {
			if err := p.Stop(); err != nil && !errors.Is(err, ErrEnded) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if e := wait(t, p); e.Code != 3 || e.Cause != "many" || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
	p.End("too late")
	if e := p.Exit(); e.Cause != "many" {
		t.Errorf("cause is %q", e.Cause)
	}
}

func TestEndRacesWithExit(t *testing.T) {
	t.Parallel()
	for i := range 100 {
		j := newJob(t)
		j.Args = []string{"/bin/sh", "-c", "exit 5"}
		p := j.startMode(t, i%2 == 0)
		for range i % 4 {
			_, _ = readStat(p.PID()) // End comes a little later each time
		}
		p.End("race")
		e := wait(t, p)
		byItself := e.Code == 5 && e.Signal == ""
		if !byItself && (e.Signal != "SIGTERM" || e.Cause != "race") || e.Err != nil {
			t.Fatalf("exit is %+v", e)
		}
	}
}

func TestEndAfterExitHasNoCause(t *testing.T) {
	t.Parallel()
	j := newJob(t, "-exit", "4")
	p, err := launch(j.Command, directly)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.leader.wait(); err != nil {
		t.Fatal(err)
	}
	p.End("too late")
	go p.supervise()
	if e := wait(t, p); e.Code != 4 || e.Cause != "" || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
}

func TestStolenStatus(t *testing.T) {
	t.Parallel()
	p, err := launch(newJob(t, "-exit", "4").Command, directly)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(p.PID(), nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	go p.supervise()
	if e := wait(t, p); e.Code != -1 || !errors.Is(e.Err, unix.ECHILD) {
		t.Errorf("exit is %+v", e)
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	j := newJob(t, "-progress", "1 2", "-progress", "2 2 done", "-result", `{"a":1}`)
	j.Env = append(j.Env, "JOBDIR_PROGRESS="+j.log+".progress", "JOBDIR_RESULT="+j.log+".result")
	if e := wait(t, j.start(t)); e.Code != 0 {
		t.Fatalf("exit is %+v: %s", e, j.output(t))
	}
	for suffix, want := range map[string]string{"progress": "1 2\n2 2 done\n", "result": `{"a":1}`} {
		got, err := os.ReadFile(j.log + "." + suffix)
		if err != nil || strings.Compare(string(got), want) != 0 {
			t.Errorf("%s is %q, %v", suffix, got, err)
		}
	}
}
