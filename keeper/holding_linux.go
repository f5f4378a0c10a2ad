package keeper

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// holding is a command in the hands of a keeper, until its end was taken.
type holding struct {
	key     Key
	report  string
	process *Process
	exit    *Report // guarded by the lock of the server; set once

	saving sync.Mutex // held while the report is written; guards saved
	saved  saved
}

// saved says what became of an exit report.
type saved int

const (
	notSaved saved = iota
	written        // survives this process
	durable        // survives a power cut, as far as the storage wants that
)

// begin carries out a start. It owns the output.
func (s *server) begin(c *client, number uint64, key Key, cmd *Command) {
	defer cmd.Output.Close()
	h, adopted, err := s.start(key, cmd)
	if err != nil {
		c.answer(number, message{Refusal: refusalOf(err), Error: err.Error()})
		return
	}
	answer := s.describe(h)
	answer.Adopted = adopted
	c.answer(number, message{Command: &answer})
	if !adopted {
		// After the answer, so that nobody hears of an end before he hears of the start.
		s.group.Go(func() {
			h.process.supervise()
			s.over(h)
		})
	}
}

// start starts a command, unless there is one with its key, or is about to be.
func (s *server) start(key Key, cmd *Command) (h *holding, adopted bool, err error) {
	for {
		s.mu.Lock()
		if h := s.held[key]; h != nil {
			s.mu.Unlock()
			return h, true, nil
		}
		begun := s.starting[key]
		if begun == nil {
			break
		}
		s.mu.Unlock()
		<-begun
	}
	defer s.mu.Unlock()
	if s.retiring || s.closing {
		return nil, false, errRetiring
	}
	begun := make(chan struct{})
	defer close(begun)
	s.starting[key] = begun
	s.running++
	s.mu.Unlock()
	// What is kept must not keep the whole message alive.
	cmd.Args[0] = strings.Clone(cmd.Args[0])
	cmd.Mark = slices.Clone(cmd.Mark)
	for i := range cmd.Mark {
		cmd.Mark[i] = strings.Clone(cmd.Mark[i])
	}
	p, err := launch(*cmd, s.onThread)
	s.mu.Lock()
	delete(s.starting, key)
	if err != nil {
		s.running--
		s.poke()
		return nil, false, err
	}
	h = &holding{key: key, report: strings.Clone(cmd.Report), process: p}
	s.held[key] = h
	if s.closing {
		p.End(CauseKeeperEnds) // it came too late for endAll
	}
	return h, false, nil
}

// describe tells a daemon of a command.
func (s *server) describe(h *holding) command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.describeLocked()
}

func (h *holding) describeLocked() command {
	p := h.process
	p.mu.Lock()
	stopped := p.limit.stopped() && !p.exited
	p.mu.Unlock()
	return command{
		Key: h.key, PID: p.PID(), StartedAt: p.started, Stopped: stopped,
		Grace: p.grace, Mark: pack(p.mark), Report: h.report, Exit: h.exit,
	}
}

// over tells everybody how a command ended, and writes it down. A daemon that is there is told first: it writes its own record, and
// when it was quick no report is needed.
func (s *server) over(h *holding) {
	report := makeReport(h.key, h.process, os.Getpid())
	s.mu.Lock()
	h.exit = report
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	s.mu.Unlock()
	for _, c := range clients {
		c.tell(message{Exit: report})
	}
	s.mu.Lock()
	taken := s.held[h.key] != h
	s.mu.Unlock()
	saved := taken || s.saveOne(h, len(clients) > 0)
	s.mu.Lock()
	s.running--
	// It is looked at again when the daemon that was there has gone meanwhile.
	s.unsaved = s.unsaved || !saved || len(clients) > 0 && len(s.clients) == 0
	s.mu.Unlock()
	s.poke()
}

// save writes the reports that have to be there by now, and reports whether one could not be written.
//
// With a daemon there, which writes down the end in its own record, the report of a whole run is written without a sync, and that of
// an item not at all: it is kept until it is taken. When the daemon goes away everything that was not taken is made durable.
func (s *server) save() (unsaved bool) {
	s.mu.Lock()
	if !s.unsaved {
		s.mu.Unlock()
		return false
	}
	s.unsaved = false
	connected := len(s.clients) > 0
	var ended []*holding
	for _, h := range s.held {
		if h.exit != nil {
			ended = append(ended, h)
		}
	}
	s.mu.Unlock()
	for _, h := range ended {
		unsaved = !s.saveOne(h, connected) || unsaved
	}
	s.mu.Lock()
	s.unsaved = s.unsaved || unsaved
	s.mu.Unlock()
	return unsaved
}

func (s *server) saveOne(h *holding, connected bool) (ok bool) {
	need := durable
	if connected {
		need = written
		if h.key.Item > 0 {
			need = notSaved
		}
	}
	h.saving.Lock()
	defer h.saving.Unlock()
	if h.saved >= need || h.report == "" {
		return true
	}
	data, err := json.Marshal(h.exit)
	if err == nil {
		err = s.exits.Write(h.report, append(data, '\n'), need == durable && s.Durability != statefs.Process)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Logger.Error("exit report not written; it is tried again", "report", h.report, "error", err)
		return false
	}
	if err != nil {
		s.Logger.Error("exit report not written: its operation was removed", "report", h.report, "error", err)
	}
	h.saved = need
	return true
}
