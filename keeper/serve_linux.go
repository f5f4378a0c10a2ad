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

	"github.com/jobdir/jobdir/statefs"
)

// DefaultIdle is how long a keeper waits for a daemon when it has no commands.
const DefaultIdle = 10 * time.Second

// tryAgain is when an exit report is written again that could not be written.
const tryAgain = time.Second

// server is a keeper process at work.
type server struct {
	Options
	named    string // Dir as it was given
	number   int
	home     *os.File // the storage directory
	lock     *os.File
	listener *net.UnixListener
	exits    *statefs.Exits
	cgroup   string // folder of a control group of its own, if any
	warden   *warden
	forks    chan func() // carried out one after another, on the thread that lives as long as the keeper
	look     chan struct{}
	group    sync.WaitGroup

	mu       sync.Mutex
	held     map[Key]*holding
	starting map[Key]chan struct{} // closed when it is in held, or could not be started
	clients  map[*client]struct{}
	instance string          // of the daemon that is listened to
	heard    uint64          // its client.number: what others have sent is dropped
	replaced map[string]bool // the instances of those before
	running  int             // commands that run or are being started
	unsaved  bool            // exit reports have to be written
	retiring bool
	closing  bool
	trying   trying
}

// Serve is the whole keeper process of a storage directory. It returns when it has nothing to do: without commands and without a
// daemon for Options.Idle, or with its last command when a daemon has asked it to retire. When ctx ends it ends its commands first,
// each with its grace period. The error wraps ErrReportsLost when it could not write down how they ended: it tries for a while, and longer
// when nobody has told it to end.
//
// It makes the whole process its own: subreaper, threads, reaping of all children. The process must do nothing else.
func Serve(ctx context.Context, options Options) error {
	s := &server{
		Options: options,
		forks:   make(chan func()), look: make(chan struct{}, 1),
		held: map[Key]*holding{}, starting: map[Key]chan struct{}{}, clients: map[*client]struct{}{}, replaced: map[string]bool{},
	}
	s.Idle = cmp.Or(s.Idle, DefaultIdle)
	s.farewell, s.forlorn = cmp.Or(s.farewell, farewell), cmp.Or(s.forlorn, forlorn)
	s.protocol = cmp.Or(s.protocol, newestProtocol)
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("keeper of %s: %w", s.Dir, err)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.group.Go(func() { ReapOrphans(working) })
	s.group.Go(func() { s.fork(working) })
	s.group.Go(func() { s.accept(working) })
	s.group.Go(func() { s.warden.keep(working) })
	if s.Ready != nil {
		s.Ready(s.number)
	}
	lost := s.serve(ctx)
	if lost == nil {
		s.saveAll()
	}
	stop()
	err := s.close(lost == nil)
	s.group.Wait()
	return errors.Join(lost, err, s.lock.Close(), s.home.Close())
}

func (s *server) open(ctx context.Context) (err error) {
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return err
	}
	s.named = s.Dir
	// By its descriptor from here on: the folder may be moved while commands run.
	if s.home, err = os.Open(s.Dir); err != nil {
		return err
	}
	s.Dir = fmt.Sprintf("/proc/self/fd/%d", s.home.Fd())
	if s.exits, err = statefs.NewExits(s.Dir); err != nil {
		return err
	}
	if err := subreap(); err != nil {
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

// settle makes what a keeper with a number needs before it serves.
func (s *server) settle(ctx context.Context) (err error) {
	if s.warden, err = newWarden(s.Warden, s.Dir, s.Logger); err != nil {
		return err
	}
	s.warden.tell(orderLog, logName(s.number))
	if err := s.warden.start(); err != nil {
		return err
	}
	if s.cgroup, err = enterGroup(); err != nil {
		s.Logger.Debug("no control group of its own", "reason", err)
	} else if err := noteGroup(s.lock, s.cgroup); err != nil {
		return err
	} else {
		s.warden.tell(orderGroup, s.cgroup)
	}
	if s.listener, err = listenAt(ctx, filepath.Join(s.Dir, socketName(s.number))); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// close ends the connections and takes the names away while the lock is still held, unless the next daemon is to find the last words.
func (s *server) close(tidy bool) error {
	err := s.listener.Close()
	if tidy {
		err = errors.Join(err, removeNumber(s.Dir, s.number))
	}
	s.mu.Lock()
	clients := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	for _, c := range clients {
		c.tell(message{Bye: true}) // it has been told everything else
		_ = c.Close()
	}
	s.warden.dismiss()
	if err := leaveGroup(s.cgroup); err != nil {
		s.Logger.Debug("control group left behind", "group", s.cgroup, "error", err)
	}
	return err
}

// fork makes forks on one thread. The kernel kills the children of a thread that ends (prctl(2), PR_SET_PDEATHSIG), so it
// must be one that ends with the process and not before: that of a goroutine which never gives it back.
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

// onThread has a fork made on that thread. It lives while a command is being started.
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
			s.Logger.Error("connection not accepted", "error", err)
			pause(ctx, tryAgain) // such as that the limit of open files is reached
			continue
		}
		if _, err := peer(conn); err != nil {
			s.Logger.Warn("connection refused", "error", err)
			_ = conn.Close() // nothing was said
			continue
		}
		s.group.Go(func() { s.talk(&client{channel: newChannel(conn), number: number}) }) //nolint:contextcheck // commands outlive every context but that of their own end
	}
}

// poke has the main loop look whether there is still something to do.
func (s *server) poke() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// serve returns when the keeper is to end, with an error when it leaves reports unwritten.
func (s *server) serve(ctx context.Context) error {
	told := ctx.Done()
	timer := time.NewTimer(s.Idle)
	defer timer.Stop()
	var idleSince time.Time
	idle := max(s.Idle, DefaultIdle) // until somebody has come: the daemon that has started it is about to
	for {
		unsaved := s.save()
		busy, done := s.occupied(unsaved)
		if done {
			return nil
		}
		if err := s.givesUp(unsaved, time.Now()); err != nil {
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
		case time.Since(idleSince) >= idle && s.shut():
			return nil
		}
		if unsaved {
			timer.Reset(tryAgain)
		}
		select {
		case <-told:
			told = nil
			s.endAll()
		case <-s.look:
		case <-timer.C:
		}
	}
}

// occupied tells whether there is a reason to stay, and whether it is time to go at once.
func (s *server) occupied(unsaved bool) (busy, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy = s.running > 0 || unsaved || len(s.clients) > 0
	untold := len(s.held) > 0 && len(s.clients) > 0 && !s.closing
	if s.running == 0 && !unsaved && (s.closing || s.retiring && !untold) {
		s.closing = true
		return busy, true
	}
	return busy, false
}

// shut makes an idle keeper refuse whoever comes now; false when somebody has come just before.
func (s *server) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 || len(s.clients) > 0 {
		return false
	}
	s.closing = true
	return true
}

// endAll ends every command because the keeper itself was told to end.
func (s *server) endAll() {
	s.mu.Lock()
	s.closing = true
	var all []*Process
	for _, h := range s.held {
		if h.exit == nil {
			all = append(all, h.process)
		} else {
			h.endedWithUs()
		}
	}
	s.mu.Unlock()
	s.Logger.Warn("told to end: all commands are ended", "commands", len(all))
	for _, p := range all {
		p.End(CauseKeeperEnds)
	}
}
