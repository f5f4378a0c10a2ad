package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// supervisedCommand is a command of this keeper, until a daemon has acknowledged its end.
type supervisedCommand struct {
	command     // its Exit is guarded by the lock of the server
	process     *Process
	slot        int         // in the warden's list of leaders
	reportTimer *time.Timer // writes the report when no daemon acknowledges the end; set together with Exit

	saving      sync.Mutex // held while the report is written or removed; guards the fields below
	reportState reportState
	// savedExit is the end that was written: Exit may change once more.
	savedExit    *Report
	acknowledged bool // the report is not needed any more
}

// takeTimeout is how long a daemon that was notified of an end may take to acknowledge it before
// the report is written, in case both processes are killed. Nearly every end is acknowledged within
// a millisecond or two, and then no file is made.
const takeTimeout = time.Second

// reportState is how safely an exit report is stored.
type reportState int

const (
	notSaved reportState = iota
	written              // survives the death of this process
	durable              // survives a power cut, as far as Options.Durability requires that
)

// shutdownSkew is how much earlier than its keeper a command may get SIGTERM when the machine shuts
// down.
const shutdownSkew = 5 * time.Second

// markKeeperShutdown sets the cause of a command that has just ended by SIGTERM, when the keeper
// gets SIGTERM too: a machine that shuts down sends it to all processes, in any order. The caller
// holds the lock of the server.
func (h *supervisedCommand) markKeeperShutdown() {
	if h.Exit.Signal != "SIGTERM" || h.Exit.Cause != "" || time.Since(h.Exit.At) > shutdownSkew {
		return
	}
	told := *h.Exit
	told.Cause = CauseKeeperEnds
	h.Exit = &told
}

// begin carries out a start. It owns the output.
func (s *server) begin(c *client, number uint64, key Key, cmd *Command) {
	defer cmd.Output.Close()
	h, known, err := s.start(c, number, key, cmd)
	if err != nil {
		c.answer(number, message{Refusal: refusalOf(err), Error: err.Error()})
		return
	}
	s.mu.Lock()
	answer := h.command
	s.mu.Unlock()
	c.answer(number, message{Command: &answer})
	if !known {
		// After the answer, so that no daemon hears of the end before it hears of the start.
		s.group.Go(func() {
			h.process.supervise()
			s.commandEnded(h)
		})
	}
}

// start starts a command. If one with its key exists or is being started, it returns that one. It
// fails with ErrUnwanted if the daemon does not want the start any more.
func (s *server) start(c *client, number uint64, key Key, cmd *Command) (h *supervisedCommand, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.starting[key] && s.daemons.isCurrent(c) {
		s.started.Wait()
	}
	if !s.daemons.isCurrent(c) {
		return nil, false, errReplacedHere
	}
	if h := s.commands[key]; h != nil {
		return h, true, nil
	}
	if s.retiring || s.closing {
		return nil, false, errRetiring
	}
	s.starting[key] = true
	s.running++
	s.mu.Unlock()
	err = ErrUnwanted
	var p *Process
	if c.confirmStart(number, s.ends) {
		p, err = s.launch(cmd)
	}
	s.mu.Lock()
	delete(s.starting, key)
	s.started.Broadcast() // heard after the unlock
	if err != nil {
		s.running--
		s.poke()
		return nil, false, err
	}
	h = &supervisedCommand{
		command: command{
			Key: key, PID: p.PID(), Grace: p.grace, Mark: p.mark, Report: strings.Clone(cmd.Report), Label: []byte(cmd.Label),
		},
		process: p, slot: s.warden.enter(p.PID()),
	}
	s.commands[key] = h
	if s.closing {
		p.End(CauseKeeperEnds) // it came too late for endAll
	}
	return h, false, nil
}

func (s *server) launch(cmd *Command) (*Process, error) {
	// Clone what is kept, so that it does not keep the whole message in memory.
	cmd.Args[0] = strings.Clone(cmd.Args[0])
	cmd.Mark = slices.Clone(cmd.Mark)
	for i := range cmd.Mark {
		cmd.Mark[i] = strings.Clone(cmd.Mark[i])
	}
	cmd.Env = s.warden.marked(cmd.Env)
	s.warden.setGrace(cmd.Grace)
	return launch(*cmd, s.onThread)
}

// commandEnded notifies the daemon that a command has ended. It writes the report at once when no
// daemon is connected; the timer writes it when a daemon does not acknowledge the end in time.
func (s *server) commandEnded(h *supervisedCommand) {
	p := h.process
	report := &Report{
		Version: reportVersion, Key: h.Key, Label: h.Label, PID: p.PID(), Exit: p.Exit(), StartedAt: p.started,
		Boot: machine.This().Boot, Keeper: os.Getpid(),
	}
	if report.Err != nil {
		report.Error = report.Err.Error()
	}
	s.warden.leave(h.slot)
	s.mu.Lock()
	h.Exit = report
	if s.closing {
		h.markKeeperShutdown()
		report = h.Exit
	}
	h.reportTimer = time.AfterFunc(takeTimeout, func() { s.saveReport(h, written) })
	clients := slices.Collect(maps.Keys(s.daemons.connected))
	s.mu.Unlock()
	for _, c := range clients {
		c.notify(message{Exit: report})
	}
	saved := len(clients) > 0 || s.saveReport(h, durable)
	s.mu.Lock()
	s.running--
	// Check again if the daemon that was notified has disconnected since.
	s.unsaved = s.unsaved || !saved || len(clients) > 0 && len(s.daemons.connected) == 0
	s.mu.Unlock()
	s.poke()
}

// saveDueReports makes exit reports durable when no daemon is connected: those of all
// unacknowledged ends. It reports whether one could not be written.
func (s *server) saveDueReports() (unsaved bool) {
	s.mu.Lock()
	due := s.unsaved && len(s.daemons.connected) == 0 // a connected daemon has been notified of them
	s.unsaved = false
	s.mu.Unlock()
	if !due || s.saveAllReports() {
		return false
	}
	s.mu.Lock()
	s.unsaved = true
	s.mu.Unlock()
	return true
}

// saveAllReports makes the reports of all unacknowledged ends durable.
func (s *server) saveAllReports() (ok bool) {
	s.mu.Lock()
	var ended []*supervisedCommand
	for _, h := range s.commands {
		if h.Exit != nil {
			ended = append(ended, h)
		}
	}
	s.mu.Unlock()
	ok = true
	for _, h := range ended {
		ok = s.saveReport(h, durable) && ok
	}
	return ok
}

// saveReport writes a report at least as safely as need requires.
func (s *server) saveReport(h *supervisedCommand, need reportState) (ok bool) {
	s.mu.Lock()
	exit := h.Exit
	s.mu.Unlock()
	h.saving.Lock()
	defer h.saving.Unlock()
	if h.acknowledged || h.reportState >= need && h.savedExit == exit || h.Report == "" {
		return true
	}
	data, err := json.Marshal(exit)
	if err == nil {
		err = s.exits.Write(h.Report, append(data, '\n'), need == durable && s.Durability != statefs.Process)
	}
	if err != nil && !s.exits.Removed(h.Report) {
		s.mu.Lock()
		s.reportRetry.err = err
		s.mu.Unlock()
		s.logger.Error("exit report not written, retrying", "report", h.Report, "error", err)
		return false
	}
	if err != nil {
		s.logger.Error("exit report not written: its operation was removed", "report", h.Report, "error", err)
	}
	h.reportState, h.savedExit = need, exit
	return true
}

// removeReport removes the report of a command whose end was acknowledged. Only the keeper writes
// and removes the file until then, so no report appears after its removal.
func (s *server) removeReport(h *supervisedCommand) {
	h.reportTimer.Stop()
	h.saving.Lock()
	defer h.saving.Unlock()
	h.acknowledged = true
	if h.reportState == notSaved || h.Report == "" {
		return
	}
	if err := statefs.RemoveExit(s.Dir, h.Report); err != nil {
		s.logger.Warn("exit report not removed; it is of a run that is over", "report", h.Report, "error", err)
	}
}

const (
	// shutdownReportTimeout is how long a keeper that is shutting down retries failing writes of
	// exit reports when it has nothing else left to do.
	shutdownReportTimeout = 10 * time.Second
	// orphanedReportTimeout is how long any other keeper retries them while no daemon is connected
	// and the storage fails in a way that does not repair itself, for example because its disk is
	// gone. On a full disk it retries without a limit.
	orphanedReportTimeout = 10 * time.Minute
)

// ErrReportsLost means that a keeper has stopped retrying to write how its last commands ended. The
// next daemon treats them as cut off.
var ErrReportsLost = errors.New("the exit reports of the last commands could not be written")

// reportRetry is the state of retrying: exit reports are all that is left to do, and they cannot be
// written.
type reportRetry struct {
	since time.Time
	err   error // the last error; guarded by the lock of the server
}

// abandonReports returns an error when it is time to give up reports that cannot be written: the
// keeper has to end, or no daemon is connected and the storage stays broken. From then on the
// keeper refuses connections.
func (s *server) abandonReports(unsaved bool, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !unsaved || s.running > 0 || len(s.daemons.connected) > 0 {
		s.reportRetry.since = time.Time{}
		return nil
	}
	if s.reportRetry.since.IsZero() {
		s.reportRetry.since = now
	}
	limit := s.orphanedReportTimeout
	if s.closing {
		limit = s.shutdownReportTimeout
	}
	tried := now.Sub(s.reportRetry.since)
	if tried < limit || !s.closing && files.DiskFull(s.reportRetry.err) {
		return nil
	}
	s.closing = true
	for key, h := range s.commands {
		if h.Exit != nil {
			s.logger.Error("exit report given up: the next daemon takes the command for cut off", "operation",
				key.Operation, "run", key.Run,
				"code", h.Exit.Code, "signal", h.Exit.Signal, "ended_at", h.Exit.At)
		}
	}
	return fmt.Errorf("%w in %s: %w; bring the disk of %s back, and start the daemon again", ErrReportsLost,
		tried.Round(time.Second), s.reportRetry.err, s.named)
}
