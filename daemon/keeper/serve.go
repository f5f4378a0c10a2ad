package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// DefaultIdle is how long a keeper without commands waits for a daemon.
const DefaultIdle = 10 * time.Second

// reportRetryInterval is the time after which a failed write of an exit report is retried.
const reportRetryInterval = time.Second

// server is the state of a keeper process.
type server struct {
	Options
	place
	logger   *slog.Logger
	listener *net.UnixListener
	exits    *statefs.Exits
	warden   *warden
	forks    chan func() // run one after another, on the thread that lives as long as the keeper
	wake     chan struct{}
	ends     chan struct{} // closed when the keeper shuts down
	group    sync.WaitGroup

	mu          sync.Mutex
	commands    map[Key]*supervisedCommand
	starting    map[Key]bool // commands that are being started
	started     sync.Cond    // signalled when starting gets smaller
	daemons     daemons
	running     int  // commands that run or are being started
	unsaved     bool // exit reports have to be written
	retiring    bool
	closing     bool
	reportRetry reportRetry
}

func newServer(options Options) *server {
	s := &server{
		Options: options, logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		forks: make(chan func()), wake: make(chan struct{}, 1), ends: make(chan struct{}),
		commands: map[Key]*supervisedCommand{}, starting: map[Key]bool{},
		daemons: daemons{connected: map[*client]struct{}{}, replaced: map[string]bool{}},
	}
	s.started.L = &s.mu
	s.Idle = cmp.Or(s.Idle, DefaultIdle)
	s.shutdownReportTimeout = cmp.Or(s.shutdownReportTimeout, shutdownReportTimeout)
	s.orphanedReportTimeout = cmp.Or(s.orphanedReportTimeout, orphanedReportTimeout)
	s.protocol = cmp.Or(s.protocol, newestProtocol)
	return s
}

func (s *server) run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("keeper of %s: %w", s.Dir, err)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.group.Go(func() { ReapOrphans(working) })
	s.group.Go(func() { s.fork(working) })
	s.group.Go(func() { s.accept(working) })
	s.group.Go(func() { s.warden.supervise(working) })
	s.announce()
	lost := s.serve(ctx)
	if lost == nil {
		s.saveAllReports()
	}
	stop()
	err := s.close(lost == nil)
	s.group.Wait()
	return errors.Join(lost, err, s.lock.Close(), s.home.Close())
}

func (s *server) open(ctx context.Context) (err error) {
	if s.named, err = filepath.Abs(s.Dir); err != nil {
		return err
	}
	if s.home, err = os.Open(s.named); err != nil {
		return err
	}
	s.Dir = fmt.Sprintf("/proc/self/fd/%d", s.home.Fd()) // the folder may be moved while commands run
	if s.exits, err = statefs.NewExits(s.Dir); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if s.number, s.lock, err = takeNumber(s.Dir); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		if s.warden != nil {
			s.warden.dismiss()
		}
		return errors.Join(err, leaveGroup(s.cgroup), removeNumber(s.Dir, s.number), s.lock.Close())
	}
	return nil
}

// settle sets up what a keeper with a number needs before it serves.
func (s *server) settle(ctx context.Context) (err error) {
	if s.warden, err = newWarden(s.Warden, s.Dir, s.logger); err != nil {
		return err
	}
	s.warden.sendOrder(orderLog, logName(s.number))
	if err := s.warden.start(); err != nil {
		return err
	}
	if s.cgroup, err = enterGroup(); err != nil {
		s.logger.Debug("no control group of its own", "reason", err)
	} else if err := noteGroup(s.lock, s.cgroup); err != nil {
		return err
	} else {
		s.warden.sendOrder(orderGroup, s.cgroup)
	}
	if s.listener, err = listenAt(ctx, filepath.Join(s.Dir, socketName(s.number))); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// close ends the connections. If tidy is set, it removes the keeper's files while the lock is still
// held; otherwise they stay, so that the next daemon finds the log.
func (s *server) close(tidy bool) error {
	err := s.listener.Close()
	if tidy {
		err = errors.Join(err, removeNumber(s.Dir, s.number))
	}
	s.mu.Lock()
	clients := slices.Collect(maps.Keys(s.daemons.connected))
	s.mu.Unlock()
	for _, c := range clients {
		c.notify(message{Bye: true}) // it has received everything else
		_ = c.Close()
	}
	s.warden.dismiss()
	if err := leaveGroup(s.cgroup); err != nil {
		s.logger.Debug("control group left behind", "group", s.cgroup, "error", err)
	}
	return err
}

// fork makes forks on one thread. The kernel kills the children of a thread that ends (prctl(2),
// PR_SET_PDEATHSIG), so the thread must not end before the process: this goroutine locks it and
// never unlocks it.
func (s *server) fork(ctx context.Context) {
	runtime.LockOSThread()
	for {
		select {
		case fork := <-s.forks:
			fork()
		case <-ctx.Done():
			return
		}
	}
}

// onThread runs a fork on that thread. The fork goroutine lives as long as any command is being
// started.
func (s *server) onThread(fork func(dies bool)) {
	done := make(chan struct{})
	s.forks <- func() {
		fork(true)
		close(done)
	}
	<-done
}

// accept serves each daemon that connects.
func (s *server) accept(ctx context.Context) {
	for number := uint64(1); ; number++ {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.logger.Error("connection not accepted", "error", err)
			pause(ctx, reportRetryInterval) // for example at the limit of open files
			continue
		}
		if _, err := peer(conn); err != nil {
			s.logger.Warn("connection refused", "error", err)
			_ = conn.Close() // nothing was sent
			continue
		}
		c := &client{
			channel: newChannel(newSocket(conn)), number: number, gone: make(chan struct{}),
			pendingStarts: map[uint64]chan bool{},
		}
		s.group.Go(func() { s.serveClient(c) }) //nolint:contextcheck // commands outlive every context but that of their own end
	}
}

// poke wakes the main loop to check whether work is left.
func (s *server) poke() { notify.Wake(s.wake) }

// serve returns when the keeper is to end, with an error when exit reports stay unwritten.
func (s *server) serve(ctx context.Context) error {
	told := ctx.Done()
	timer := time.NewTimer(s.Idle)
	defer timer.Stop()
	var idleSince time.Time
	idle := max(s.Idle, DefaultIdle) // until the starting daemon connects
	for {
		unsaved := s.saveDueReports()
		busy, done := s.occupied(unsaved)
		if done {
			return nil
		}
		if err := s.abandonReports(unsaved, time.Now()); err != nil {
			return err
		}
		switch {
		case busy:
			idleSince = time.Time{}
			timer.Stop()
			idle = s.Idle
		case idleSince.IsZero():
			idleSince = time.Now()
			timer.Reset(idle)
		case time.Since(idleSince) >= idle && s.closeIfIdle():
			return nil
		}
		if unsaved {
			timer.Reset(reportRetryInterval)
		}
		select {
		case <-told:
			told = nil
			s.endAll()
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// occupied reports whether there is a reason to stay, and whether to end at once.
func (s *server) occupied(unsaved bool) (busy, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy = s.running > 0 || unsaved || len(s.daemons.connected) > 0
	untold := len(s.commands) > 0 && len(s.daemons.connected) > 0 && !s.closing
	if s.running == 0 && !unsaved && (s.closing || s.retiring && !untold) {
		s.closing = true
		return busy, true
	}
	return busy, false
}

// closeIfIdle makes an idle keeper refuse new connections. It returns false when a daemon has
// connected just before.
func (s *server) closeIfIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 || len(s.daemons.connected) > 0 {
		return false
	}
	s.closing = true
	return true
}

// endAll ends every command because the keeper shuts down.
func (s *server) endAll() {
	s.mu.Lock()
	s.closing = true
	close(s.ends)
	var all []*Process
	for _, h := range s.commands {
		if h.Exit == nil {
			all = append(all, h.process)
		} else {
			h.markKeeperShutdown()
		}
	}
	s.mu.Unlock()
	s.logger.Warn("asked to stop, ending all commands", "commands", len(all))
	for _, p := range all {
		p.End(CauseKeeperEnds)
	}
}
