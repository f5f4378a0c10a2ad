package torture

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/statefs"
)

// told is one answer that a client got, or one effect that was seen: what it says, and how far the disk was before it was asked
// for and when it was there.
type told struct {
	sent, answered int
	id             statefs.ID
	list           []statefs.ID   // of a list of submits: all of them, id the first
	ask            statefs.Ask    // of a request
	end            *client.Footer // of an end that was shown
	run            int            // of work that began
	step           string         // which step of it, "" where there are none
	delivery       int            // of what is asked of a delivery: its place
	drops          bool           // it is given up
}

// play is a scenario while it is played: a daemon in a process of its own on a disk that keeps a journal.
type play struct {
	t   *testing.T
	p   *plugged
	d   *daemon
	url string // of the recorder
	// sweep is the time between two sweeps of the next daemon that is started, "" for an hour.
	sweep string
	mu    sync.Mutex
	told  []told
}

// perform plays a scenario on a new disk and returns what was told.
func perform(t *testing.T, script func(*play)) (*faultfs.Disk, []told) {
	t.Helper()
	s := &play{t: t, p: plug(t, faultfs.Empty())}
	recorder := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id, err := statefs.ParseID(r.FormValue("id"))
		run, err2 := strconv.Atoi(r.FormValue("run"))
		if err != nil || err2 != nil {
			t.Errorf("recorded: %s", r.URL)
		}
		at := s.p.disk.Len()
		s.note(told{sent: at, answered: at, id: id, run: run, step: r.FormValue("step")})
	}))
	defer recorder.Close()
	s.url = recorder.URL
	s.start()
	script(s)
	s.d.kill()
	disk := s.p.disk
	s.p.remove()
	return disk, s.told
}

func (s *play) note(what told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
}

// start starts a daemon, after a kill of the one before.
func (s *play) start() {
	s.t.Helper()
	if s.d != nil {
		s.d.kill()
	}
	s.d = &daemon{stderr: new(output), ended: make(chan struct{})}
	s.d.cmd = exec.Command("/proc/self/exe", s.p.dir)
	s.d.cmd.Env = append(os.Environ(), s.p.mark, childEnv+"=serve", recorderEnv+"="+s.url, sweepEnv+"="+s.sweep)
	s.d.cmd.Dir = "/"
	must(s.t, s.p.await(s.d))
}

func (s *play) submit(job string) statefs.ID {
	s.t.Helper()
	sent := s.p.disk.Len()
	op, err := s.d.Submit(s.t.Context(), "t", job, nil)
	must(s.t, err)
	s.note(told{sent: sent, answered: s.p.disk.Len(), id: op.ID})
	return op.ID
}

// submitList submits a job several times, all or nothing.
func (s *play) submitList(job string, count int, delay time.Duration) []statefs.ID {
	s.t.Helper()
	list := make([]client.Submission, count)
	for i := range list {
		list[i] = client.Submission{Job: "t/" + job, Delay: delay}
	}
	sent := s.p.disk.Len()
	made, err := s.d.SubmitList(s.t.Context(), list)
	must(s.t, err)
	answered := s.p.disk.Len()
	ids := make([]statefs.ID, len(made))
	for i, one := range made {
		ids[i] = one.ID
	}
	s.note(told{sent: sent, answered: answered, id: ids[0], list: ids})
	return ids
}

// ask asks and, with a wait, returns when it took effect.
func (s *play) ask(id statefs.ID, ask statefs.Ask, wait time.Duration) {
	s.t.Helper()
	sent := s.p.disk.Len()
	_, err := s.d.Request(s.t.Context(), id, ask, wait)
	must(s.t, err)
	s.note(told{sent: sent, answered: s.p.disk.Len(), id: id, ask: ask})
}

// end waits for the end and notes what was shown.
func (s *play) end(id statefs.ID) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	footer, err := s.d.Wait(ctx, id)
	must(s.t, err)
	at := s.p.disk.Len()
	s.note(told{sent: at, answered: at, id: id, end: footer})
}

func (s *play) running(id statefs.ID) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s runs", id), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, what := range s.told {
			if what.id == id && what.run > 0 {
				return true
			}
		}
		return false
	})
}

// scenarios are the orders of writes that are cut at every point.
var scenarios = map[string]func(*play){
	"submit": func(s *play) { s.submit("wait"); s.submit("wait") },
	"steps":  playSteps,
	"finish": func(s *play) { s.end(s.submit("count")) },
	"pause and resume": func(s *play) {
		id := s.submit("wait")
		s.running(id)
		s.ask(id, statefs.Pause, patience)
		s.ask(id, statefs.Resume, patience)
		s.ask(id, statefs.Pause, patience)
	},
	"cancel": func(s *play) {
		id, held := s.submit("wait"), s.submit("wait")
		s.running(held)
		s.ask(id, statefs.Cancel, 0)
		s.end(id)
		s.ask(held, statefs.Pause, patience)
		s.ask(held, statefs.Cancel, patience)
		s.end(held)
	},
	"requests without a wait": func(s *play) {
		id := s.submit("wait")
		for _, ask := range []statefs.Ask{statefs.Resume, statefs.Pause, statefs.Resume, statefs.Pause, statefs.Pause, statefs.Resume} {
			s.ask(id, ask, 0)
		}
	},
	"kill and recover": func(s *play) {
		running, paused := s.submit("wait"), s.submit("wait")
		s.running(paused)
		s.ask(paused, statefs.Pause, patience)
		s.start()
		s.end(s.submit("count"))
		s.ask(paused, statefs.Resume, 0)
		s.start()
		s.ask(running, statefs.Cancel, 0)
		s.start()
		s.end(running)
	},
	"list": func(s *play) {
		s.submitList("wait", 4, time.Hour)
		ids := s.submitList("wait", 3, 0)
		s.running(ids[2])
		s.ask(ids[2], statefs.Cancel, patience)
		s.end(ids[2])
	},
	"list whose records are synced later": func(s *play) {
		s.sweep = "20ms"
		s.start()
		ids := s.submitList("wait", 3, time.Hour)
		s.ask(ids[1], statefs.Cancel, patience)
		until(s.t, "the records are synced", func() bool {
			files, err := filepath.Glob(filepath.Join(s.p.dir, "taken", "*.records"))
			return err == nil && len(files) == 0
		})
		s.end(s.submit("count"))
	},
	"deliver": func(s *play) {
		id := s.submit("deliver")
		s.end(id)
		until(s.t, "it is delivered", func() bool { return s.has("operations", id.Day(), id.String()+".json", `"delivered_at"`) })
		other := s.submit("deliver")
		s.end(other)
		s.start()
		until(s.t, "it is delivered after the kill", func() bool { return s.has("operations", other.Day(), other.String()+".json", `"delivered_at"`) })
	},
	"deliver, retry, drop": playHands,
	"deliver artifacts": func(s *play) {
		id := s.submit("leaves")
		s.end(id)
		s.delivered(id, statefs.DeliveryDelivered)
	},
	"retry, delete, sweep": func(s *play) {
		id := s.submit("wait")
		s.ask(id, statefs.Cancel, patience)
		s.end(id)
		sent := s.p.disk.Len()
		again, err := s.d.Retry(s.t.Context(), id, false)
		must(s.t, err)
		s.note(told{sent: sent, answered: s.p.disk.Len(), id: again.Operation.ID})
		_, err = s.d.Sweep(s.t.Context(), false)
		must(s.t, err)
	},
}
