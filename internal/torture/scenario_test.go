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

// acknowledgement is an answer to a client or an observed effect: its content, and the position of the disk
// before the request and after the answer.
type acknowledgement struct {
	sent, answered int
	id             statefs.ID
	list           []statefs.ID   // of a list of submits: all of them, id the first
	action         statefs.Action // of a request
	end            *client.Footer // of an end that was observed
	run            int            // of work that started
	step           string         // the step, "" for an operation without steps
	delivery       int            // of a request for a delivery: its position
	drops          bool           // the request drops it
}

// play is a running scenario: a daemon in its own process on a disk that keeps a journal.
type play struct {
	t   *testing.T
	p   *plugged
	d   *daemon
	url string // of the recorder
	// sweep is the time between two sweeps of the next daemon, "" for an hour.
	sweep string
	// commit is the setting of the daemons, "" for that of all tests.
	commit statefs.CommitMethod
	mu     sync.Mutex
	acks   []acknowledgement
}

// perform plays a scenario on a new disk and returns the acknowledgements.
func perform(t *testing.T, script func(*play)) (*faultfs.Disk, []acknowledgement) {
	t.Helper()
	return performBy(t, "", script)
}

// performBy is perform with daemons that commit in one way.
func performBy(t *testing.T, commit statefs.CommitMethod, script func(*play)) (*faultfs.Disk, []acknowledgement) {
	t.Helper()
	s := &play{t: t, p: plug(t, faultfs.Empty()), commit: commit}
	recorder := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id, err := statefs.ParseID(r.FormValue("id"))
		run, err2 := strconv.Atoi(r.FormValue("run"))
		if err != nil || err2 != nil {
			t.Errorf("recorded: %s", r.URL)
		}
		at := s.p.disk.Len()
		s.note(acknowledgement{sent: at, answered: at, id: id, run: run, step: r.FormValue("step")})
	}))
	defer recorder.Close()
	s.url = recorder.URL
	s.start()
	script(s)
	s.d.kill()
	disk := s.p.disk
	s.p.remove()
	return disk, s.acks
}

func (s *play) note(what acknowledgement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks = append(s.acks, what)
}

// start starts a daemon, after the previous one was killed.
func (s *play) start() {
	s.t.Helper()
	if s.d != nil {
		s.d.kill()
	}
	s.d = &daemon{stderr: new(output), ended: make(chan struct{})}
	s.d.cmd = exec.Command("/proc/self/exe", s.p.dir)
	s.d.cmd.Env = append(os.Environ(), s.p.mark, childEnv+"=serve", recorderEnv+"="+s.url, sweepEnv+"="+s.sweep)
	if s.commit != "" {
		s.d.cmd.Env = append(s.d.cmd.Env, "JOBDIR_COMMIT="+string(s.commit))
	}
	s.d.cmd.Dir = "/"
	must(s.t, s.p.await(s.d))
}

func (s *play) submit(job string) statefs.ID {
	s.t.Helper()
	sent := s.p.disk.Len()
	op, err := s.d.Submit(s.t.Context(), "t", job, nil)
	must(s.t, err)
	s.note(acknowledgement{sent: sent, answered: s.p.disk.Len(), id: op.ID})
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
	s.note(acknowledgement{sent: sent, answered: answered, id: ids[0], list: ids})
	return ids
}

// request makes a request and, with a wait, returns when it took effect.
func (s *play) request(id statefs.ID, ask statefs.Action, wait time.Duration) {
	s.t.Helper()
	sent := s.p.disk.Len()
	_, err := s.d.Request(s.t.Context(), id, ask, wait)
	must(s.t, err)
	s.note(acknowledgement{sent: sent, answered: s.p.disk.Len(), id: id, action: ask})
}

// end waits for the end and records the footer.
func (s *play) end(id statefs.ID) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	footer, err := s.d.Wait(ctx, id)
	must(s.t, err)
	at := s.p.disk.Len()
	s.note(acknowledgement{sent: at, answered: at, id: id, end: footer})
}

func (s *play) running(id statefs.ID) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s runs", id), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, what := range s.acks {
			if what.id == id && what.run > 0 {
				return true
			}
		}
		return false
	})
}

// scenarios are the sequences of writes that are cut at every point.
var scenarios = map[string]func(*play){
	"submit": func(s *play) { s.submit("wait"); s.submit("wait") },
	"steps":  playSteps,
	"finish": func(s *play) { s.end(s.submit("count")) },
	"pause and resume": func(s *play) {
		id := s.submit("wait")
		s.running(id)
		s.request(id, statefs.Pause, patience)
		s.request(id, statefs.Resume, patience)
		s.request(id, statefs.Pause, patience)
	},
	"cancel": func(s *play) {
		id, held := s.submit("wait"), s.submit("wait")
		s.running(held)
		s.request(id, statefs.Cancel, 0)
		s.end(id)
		s.request(held, statefs.Pause, patience)
		s.request(held, statefs.Cancel, patience)
		s.end(held)
	},
	"requests without a wait": func(s *play) {
		id := s.submit("wait")
		for _, ask := range []statefs.Action{
			statefs.Resume, statefs.Pause, statefs.Resume, statefs.Pause,
			statefs.Pause, statefs.Resume,
		} {
			s.request(id, ask, 0)
		}
	},
	"kill and recover": func(s *play) {
		running, paused := s.submit("wait"), s.submit("wait")
		s.running(paused)
		s.request(paused, statefs.Pause, patience)
		s.start()
		s.end(s.submit("count"))
		s.request(paused, statefs.Resume, 0)
		s.start()
		s.request(running, statefs.Cancel, 0)
		s.start()
		s.end(running)
	},
	"requests that a dead daemon had taken": func(s *play) {
		var ids []statefs.ID
		for range 4 { // so that the sync of one comes while another is taken
			ids = append(ids, s.submit("wait"))
			s.running(ids[len(ids)-1])
			s.request(ids[len(ids)-1], statefs.Pause, patience)
		}
		s.d.kill()
		tree, err := statefs.Open(s.p.dir, statefs.Options{})
		must(s.t, err)
		for _, id := range ids {
			sent, name := s.p.disk.Len(), statefs.RequestName(id, statefs.Resume)
			must(s.t, tree.Request(s.t.Context(), id, statefs.Resume, nil))
			s.note(acknowledgement{sent: sent, answered: s.p.disk.Len(), id: id, action: statefs.Resume})
			must(s.t, os.Rename(filepath.Join(tree.JobsDir(), name), filepath.Join(s.p.dir, "taken", name)))
		}
		must(s.t, tree.Close())
		s.start()
		for _, id := range ids {
			s.marker(id, statefs.Running)
		}
	},
	"list": func(s *play) {
		s.submitList("wait", 4, time.Hour)
		ids := s.submitList("wait", 3, 0)
		s.running(ids[2])
		s.request(ids[2], statefs.Cancel, patience)
		s.end(ids[2])
	},
	"list whose records are synced later": func(s *play) {
		s.sweep = "20ms"
		s.start()
		ids := s.submitList("wait", 3, time.Hour)
		s.request(ids[1], statefs.Cancel, patience)
		until(s.t, "the records are synced", func() bool {
			files, err := filepath.Glob(filepath.Join(s.p.dir, "taken", "*.records"))
			return err == nil && len(files) == 0
		})
		s.end(s.submit("count"))
	},
	"deliver": func(s *play) {
		id := s.submit("deliver")
		s.end(id)
		until(s.t, "it is delivered", func() bool {
			return s.has("operations", id.Day(), id.String()+".json",
				`"delivered_at"`)
		})
		other := s.submit("deliver")
		s.end(other)
		s.start()
		until(s.t, "it is delivered after the kill",
			func() bool { return s.has("operations", other.Day(), other.String()+".json", `"delivered_at"`) })
	},
	"deliver, retry, drop": playHands,
	"deliver artifacts": func(s *play) {
		id := s.submit("leaves")
		s.end(id)
		s.delivered(id, statefs.DeliveryDelivered)
	},
	"retry, delete, sweep": func(s *play) {
		id := s.submit("wait")
		s.request(id, statefs.Cancel, patience)
		s.end(id)
		sent := s.p.disk.Len()
		again, err := s.d.Retry(s.t.Context(), id, false)
		must(s.t, err)
		s.note(acknowledgement{sent: sent, answered: s.p.disk.Len(), id: again.Operation.ID})
		_, err = s.d.Sweep(s.t.Context(), false)
		must(s.t, err)
	},
}
