package keeper

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// holding is a command in the hands of a keeper, until its end was taken.
type holding struct {
	key     Key
	report  string
	label   []byte
	process *Process
	slot    int         // in the list that the warden has
	exit    *Report     // guarded by the lock of the server; set once
	late    *time.Timer // has the report written when nobody takes the end; guarded by the same

	saving sync.Mutex // held while the report is written or removed; guards what follows
	saved  saved
	// savedExit is what was written: what is known of an end may change once more.
	savedExit *Report
	taken     bool // its report means nothing any more
}

// takePatience is how long a daemon that was told of an end may take to write it down, before the report is written for the case
// that both processes are killed: nearly every end is taken within a millisecond or two, and then no file is made.
const takePatience = time.Second

// saved says what became of an exit report.
type saved int

const (
	notSaved saved = iota
	written        // survives this process
	durable        // survives a power cut, as far as the storage wants that
)

// sameMoment is how much earlier than its keeper a command may get SIGTERM when the machine goes down.
const sameMoment = 5 * time.Second

// endedWithUs says of a command that ended by the SIGTERM which now reaches the keeper that this was why: a machine that goes down sends it
// to everybody, in any order. The caller has the lock of the server.
func (h *holding) endedWithUs() {
	if h.exit.Signal != "SIGTERM" || h.exit.Cause != "" || time.Since(h.exit.EndedAt) > sameMoment {
		return
	}
	told := *h.exit
	told.Cause = CauseKeeperEnds
	h.exit = &told
}

// begin carries out a start. It owns the output.
func (s *server) begin(c *client, number uint64, key Key, cmd *Command) {
	defer cmd.Output.Close()
	h, adopted, err := s.start(c, key, cmd)
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
func (s *server) start(c *client, key Key, cmd *Command) (h *holding, adopted bool, err error) {
	for {
		s.mu.Lock()
		if c.number != s.heard {
			s.mu.Unlock()
			return nil, false, errReplacedHere
		}
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
	cmd.Env = s.warden.marked(cmd.Env)
	s.warden.allow(cmd.Grace)
	p, err := launch(*cmd, s.onThread)
	s.mu.Lock()
	delete(s.starting, key)
	if err != nil {
		s.running--
		s.poke()
		return nil, false, err
	}
	h = &holding{key: key, report: strings.Clone(cmd.Report), label: []byte(cmd.Label), process: p, slot: s.warden.enter(p.PID())}
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
		Grace: p.grace, Mark: pack(p.mark), Report: h.report, Label: h.label, Exit: h.exit,
	}
}

// over tells the daemon how a command ended. When there is none the report is written, and when there is one that does not take it
// in time.
func (s *server) over(h *holding) {
	report := makeReport(h, os.Getpid())
	s.warden.leave(h.slot)
	s.mu.Lock()
	h.exit = report
	if s.closing {
		h.endedWithUs()
		report = h.exit
	}
	h.late = time.AfterFunc(takePatience, func() { s.saveOne(h, written) })
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	s.mu.Unlock()
	for _, c := range clients {
		c.tell(message{Exit: report})
	}
	saved := len(clients) > 0 || s.saveOne(h, durable)
	s.mu.Lock()
	s.running--
	// It is looked at again when the daemon that was there has gone meanwhile.
	s.unsaved = s.unsaved || !saved || len(clients) > 0 && len(s.clients) == 0
	s.mu.Unlock()
	s.poke()
}

// save makes the reports durable that have to be by now, and reports whether one could not be written: when the daemon has gone
// away, those of all ends that it has not taken.
func (s *server) save() (unsaved bool) {
	s.mu.Lock()
	if !s.unsaved {
		s.mu.Unlock()
		return false
	}
	s.unsaved = false
	if len(s.clients) > 0 {
		s.mu.Unlock()
		return false // it was told of them
	}
	s.mu.Unlock()
	unsaved = !s.saveAll()
	s.mu.Lock()
	s.unsaved = s.unsaved || unsaved
	s.mu.Unlock()
	return unsaved
}

// saveAll makes the reports of all ends durable that were not taken.
func (s *server) saveAll() (ok bool) {
	s.mu.Lock()
	var ended []*holding
	for _, h := range s.held {
		if h.exit != nil {
			ended = append(ended, h)
		}
	}
	s.mu.Unlock()
	ok = true
	for _, h := range ended {
		ok = s.saveOne(h, durable) && ok
	}
	return ok
}

// saveOne writes a report at least as safely as need says.
func (s *server) saveOne(h *holding, need saved) (ok bool) {
	s.mu.Lock()
	exit := h.exit
	s.mu.Unlock()
	h.saving.Lock()
	defer h.saving.Unlock()
	if h.taken || h.saved >= need && h.savedExit == exit || h.report == "" {
		return true
	}
	data, err := json.Marshal(exit)
	if err == nil {
		err = s.exits.Write(h.report, append(data, '\n'), need == durable && s.Durability != statefs.Process)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.noteFailure(err)
		s.Logger.Error("exit report not written; it is tried again", "report", h.report, "error", err)
		return false
	}
	if err != nil {
		s.Logger.Error("exit report not written: its operation was removed", "report", h.report, "error", err)
	}
	h.saved, h.savedExit = need, exit
	return true
}

// withdraw removes the report of a command whose end was taken. The file is the keeper's until then, so that none is written behind
// the back of the daemon that removes it.
func (s *server) withdraw(h *holding) {
	s.mu.Lock()
	late := h.late
	s.mu.Unlock()
	if late != nil {
		late.Stop()
	}
	h.saving.Lock()
	defer h.saving.Unlock()
	h.taken = true
	if h.saved == notSaved || h.report == "" {
		return
	}
	if err := s.exits.Remove(h.report); err != nil {
		s.Logger.Warn("exit report not removed; it is of a run that is over", "report", h.report, "error", err)
	}
}
