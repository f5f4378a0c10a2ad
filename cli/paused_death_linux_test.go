package cli_test

import (
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A run that dies counts at once: as the last attempt, and as the death that the crash limit allows no more.
const pausedDeathJobs = `
group: g
name: whole
restart: retry
crash_limit: {burst: 1}
run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]
---
group: g
name: items
restart: retry
items: {range: [1, 2]}
parallel: 2
run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]
---
group: g
name: steps
restart: retry
steps:
  - {name: first, run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]}
  - {name: side, optional: true, run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]}
---
group: g
name: crashes
crash_limit: {burst: 1}
steps:
  - {name: first, run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]}
  - {name: side, optional: true, run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]}
`

// pausedDeathCommands is the number of commands that one operation of each of these jobs starts.
const pausedDeathCommands = 7

// TestPausedWorkDiesUncounted kills the keeper of paused work, with and without the daemon: no death and no attempt
// is counted, for required runs and for optional steps, and the work begins again once it is resumed.
func TestPausedWorkDiesUncounted(t *testing.T) {
	t.Parallel()
	for name, deaths := range map[string]func(s *orderServer, rescued func()){
		"keeper": func(s *orderServer, rescued func()) {
			signalKeepers(s.T, s.storage, syscall.SIGKILL)
			rescued()
		},
		"keeper and resume at once": func(s *orderServer, _ func()) {
			signalKeepers(s.T, s.storage, syscall.SIGKILL)
		},
		"daemon and keeper": func(s *orderServer, _ func()) {
			s.kill()
			signalKeepers(s.T, s.storage, syscall.SIGKILL)
			s.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveOrderAt(t, filepath.Join(t.TempDir(), "storage"), pausedDeathJobs)
			var ids []string
			for _, job := range []string{"whole", "items", "steps", "crashes"} {
				ids = append(ids, s.submit(job, 0))
			}
			s.awaitTrace(pausedDeathCommands)
			for _, id := range ids {
				s.requestEffect("pause", id)
			}
			deaths(s, func() {
				for _, id := range ids {
					until(t, id+" has lost its run", func() bool { return s.deaths(id).Rescues > 0 })
				}
			})
			for _, id := range ids {
				if o := s.deaths(id); o.Status != statefs.Paused {
					t.Errorf("after the death: %+v", o)
				}
				s.requestEffect("resume", id)
			}
			s.awaitTrace(2 * pausedDeathCommands)
			for _, id := range ids {
				o := s.deaths(id)
				if o.Status != statefs.Running || o.Attempts != 0 || len(o.DiedAt) != 0 {
					t.Errorf("resumed: %+v", o)
				}
				for _, step := range o.Steps {
					if step.Status != "running" || step.Attempts != 0 || len(step.DiedAt) != 0 {
						t.Errorf("resumed: step %+v of %s", step, id)
					}
				}
			}
			s.clear()
		})
	}
}

// diedOperation is what the record counts of the deaths of an operation.
type diedOperation struct {
	ID       string        `json:"id"`
	Status   statefs.State `json:"status"`
	Attempts int           `json:"attempts"`
	Rescues  int           `json:"rescues"`
	DiedAt   []time.Time   `json:"died_at"`
	Steps    []struct {
		Name     string      `json:"name"`
		Status   string      `json:"status"`
		Attempts int         `json:"attempts"`
		DiedAt   []time.Time `json:"died_at"`
	} `json:"steps"`
}

func (s *orderServer) deaths(id string) (o diedOperation) {
	s.Helper()
	s.call(http.MethodGet, "/api/v1/operations/"+id, nil, &o)
	return o
}

// requestEffect makes a request that must take effect.
func (s *orderServer) requestEffect(action, id string) {
	s.Helper()
	var answer struct {
		TookEffect bool `json:"took_effect"`
	}
	s.call(http.MethodPost, "/api/v1/operations/"+id+"/"+action+"?wait=2m", nil, &answer)
	if !answer.TookEffect {
		s.Fatalf("%s of %s: %+v", action, id, answer)
	}
}
