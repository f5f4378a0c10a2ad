//go:build linux

package keeper

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A start that a killed daemon has sent and the keeper has not read yet is either in the next
// daemon's list or never carried out: otherwise it would run beside the next run of its operation.
func TestStartOfAKilledDaemonIsInTheListOrDropped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	leave := newFIFO(t)
	keep := s.job(t, 1, "-until", leave.path)
	run(t, p, keep) // keeps the keeper alive
	keeper := p.PIDs()[0]
	p.Close()
	carriedOut := 0
	for n := range 30 {
		j := s.job(t, 10+n, "-hang")
		j.Mark = append(j.Mark, fmt.Sprintf("TEST_ROUND=%d", n))
		j.Env = append(j.Env, j.Mark[len(j.Mark)-1])
		killed := s.hail(t)
		awaitWelcome(t, killed)
		if err := unix.Kill(keeper, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		order := &order{Command: j.Command, Dir: []byte(j.Dir)}
		if err := killed.send(request{Number: 2, Verb: verbStart, Key: j.Key, Start: order}, j.Output); err != nil {
			t.Fatal(err)
		}
		killed.close()
		early := n%2 == 0 // the keeper may read the start before the next daemon connects
		if early {
			proceed(t, keeper)
		}
		listed := false
		next := s.hail(t)
		if !early {
			proceed(t, keeper)
		}
		for _, c := range awaitWelcome(t, next).Commands {
			listed = listed || c.Key == j.Key
		}
		next.close()
		p := s.open(t)
		// The keeper forks one command at a time, so an accepted start would be visible after
		// another start.
		exitOf(t, run(t, p, s.job(t, 100+n)))
		if there := len(marked(t, j.Mark)) > 0; there != listed {
			t.Fatalf("round %d: the command runs: %v, the next daemon knows it: %v", n, there, listed)
		}
		if listed {
			carriedOut++
			r, ok := p.Find(j.Key, j.Report)
			if !ok {
				t.Fatal("it is in the list and not found")
			}
			r.End("test")
			exitOf(t, r)
			r.Acknowledge()
		}
		p.Close()
	}
	t.Logf("%d of 30 starts were carried out", carriedOut)
	leave.release(t)
	p = s.open(t)
	if r, ok := p.Find(keep.Key, keep.Report); !ok {
		t.Error("the command that was there all along is gone")
	} else if e := exitOf(t, r); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
}

// closingSocket closes the channel when it is closed.
type closingSocket struct {
	*piecemeal
	closed chan struct{}
}

func (s *closingSocket) Close() error {
	close(s.closed)
	return nil
}

// The list for a new daemon contains a start that was at its fork when that daemon connected.
func TestListWaitsForStartUnderWay(t *testing.T) {
	t.Parallel()
	s := newServer(Options{Dir: t.TempDir()}) // the test makes the forks
	var err error
	if s.warden, err = newWarden(nil, s.Dir, s.logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.warden.leaders.Close() })
	replaced := make(chan struct{})
	// Protocol 2 carries out a start without asking the daemon again.
	first := &client{channel: newChannel(&closingSocket{&piecemeal{}, replaced}), number: 1, protocol: 2}
	second := &client{channel: newChannel(&piecemeal{}), number: 2}
	if _, err := s.admit(first, "first"); err != nil {
		t.Fatal(err)
	}
	j := newJob(t)
	j.Key = Key{Operation: "test", Run: 1}
	ended := make(chan error, 1)
	go func() {
		h, _, err := s.start(first, 1, j.Key, &j.Command)
		if err == nil {
			h.process.supervise()
		}
		ended <- err
	}()
	var fork func()
	select {
	case fork = <-s.forks:
	case err := <-ended:
		t.Fatalf("start failed before its fork: %v", err)
	}
	list := make(chan []command, 1)
	go func() {
		w, err := s.admit(second, "second")
		if err != nil {
			t.Error(err)
			w = &welcome{}
		}
		list <- w.Commands
	}()
	<-replaced // admit holds the lock that the start needs to finish
	fork()
	if listed := <-list; len(listed) != 1 || listed[0].Key != j.Key {
		t.Errorf("listed %+v, want the start %s", listed, j.Key)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func proceed(t *testing.T, keeper int) {
	t.Helper()
	if err := unix.Kill(keeper, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// hail returns a raw connection on which a daemon has sent hello.
func (s *site) hail(t *testing.T) *channel {
	t.Helper()
	c, _, err := dialAt(t.Context(), filepath.Join(s.dir, socketName(1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.send(request{Number: 1, Verb: verbHello, Hello: &hello{
		oldestProtocol, newestProtocol, rand.Text(),
	}}, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func awaitWelcome(t *testing.T, c *channel) *welcome {
	t.Helper()
	for {
		var m message
		if err := c.receive(&m); err != nil {
			t.Fatal(err)
		}
		if m.Welcome != nil {
			return m.Welcome
		}
	}
}

// When a second daemon connects, the keeper refuses the requests of the first, which reports that
// and cannot return.
func TestSecondDaemonReplacesTheFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.open(t)
	leave := newFIFO(t)
	j := s.job(t, 1, "-until", leave.path, "-exit", "3")
	r := run(t, first, j)
	second := s.open(t)
	again, ok := second.Find(j.Key, "")
	if !ok || again.PID() != r.PID() {
		t.Fatalf("the second daemon finds %v", again)
	}
	if err := r.Stop(); !errors.Is(err, errReplaced) {
		t.Errorf("stop by the first: %v", err)
	}
	if _, err := first.Start(t.Context(), s.job(t, 2).Command); !errors.Is(err, errReplaced) {
		t.Errorf("start by the first: %v", err)
	}
	if err := again.Stop(); err != nil {
		t.Errorf("stop by the second: %v", err)
	}
	if err := again.Continue(); err != nil {
		t.Error(err)
	}
	first.Close()
	leave.release(t)
	if e := exitOf(t, again); e.Code != 3 {
		t.Errorf("exit %+v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "keeper-*.sock")); len(left) != 1 {
		t.Errorf("sockets %v", left)
	}
	again.Acknowledge()
	r.Acknowledge()
}

// The label of a command is returned to a later pool, both by the keeper and from the exit report.
func TestLabelIsKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	leave := newFIFO(t)
	j := s.job(t, 1, "-until", leave.path)
	j.Label = "b\xffe \n\"quoted\""
	first := s.open(t)
	if _, err := first.Start(t.Context(), j.Command); err != nil {
		t.Fatal(err)
	}
	first.Close()
	p := s.open(t)
	if held := p.Commands(); len(held) != 1 || held[0].Label != j.Label {
		t.Fatalf("held %+v", held)
	}
	p.Close()
	leave.release(t)
	eventually(t, "the exit report", func() bool {
		report, err := ReadReport(s.dir, j.Report)
		return err == nil && string(report.Label) == j.Label
	})
}

// An end that the daemon acknowledges at once leaves no file. Otherwise the report is written while
// the daemon is still connected, and removed when the daemon acknowledges the end.
func TestReportIsOnlyForWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	slow := s.job(t, 1)
	r := run(t, p, slow)
	exitOf(t, r)
	eventually(t, "the report of an end that nobody takes", func() bool {
		_, err := ReadReport(s.dir, slow.Report)
		return err == nil
	})
	r.Acknowledge()
	eventually(t, "it is removed", func() bool {
		_, err := ReadReport(s.dir, slow.Report)
		return errors.Is(err, fs.ErrNotExist)
	})
	quick := s.job(t, 2)
	r = run(t, p, quick)
	exitOf(t, r)
	r.Acknowledge()
	p.Close() // unacknowledged reports are written now
	eventually(t, "the keeper ends", func() bool {
		left, err := filepath.Glob(filepath.Join(s.dir, "keeper-*"))
		return err == nil && len(left) == 0
	})
	if _, err := ReadReport(s.dir, quick.Report); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an end that was taken has a report: %v", err)
	}
}

// A keeper whose log cannot be a file writes none: it does not block, and it changes nothing outside its folder.
func TestWrongFileInPlaceOfTheLog(t *testing.T) {
	t.Parallel()
	for kind, place := range map[string]func(name string) error{
		"folder": func(name string) error { return os.Mkdir(name, 0o750) },
		"fifo":   func(name string) error { return unix.Mkfifo(name, 0o640) },
		"device": func(name string) error { return unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) },
		"link":   func(name string) error { return os.Symlink(os.DevNull, name) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			log := filepath.Join(s.dir, logName(1))
			if err := place(log); errors.Is(err, unix.EPERM) {
				t.Skipf("only root makes a %s: %v", kind, err)
			} else if err != nil {
				t.Fatal(err)
			}
			before := fileModes(t, log, os.DevNull)
			p := s.open(t)
			r, err := p.Start(t.Context(), s.job(t, 1, "-exit", "3").Command)
			if err != nil {
				t.Fatal(err)
			}
			if e := exitOf(t, r); e.Code != 3 {
				t.Errorf("exit %+v", e)
			}
			if after := fileModes(t, log, os.DevNull); after != before {
				t.Errorf("modes of the log and of %s: %v, were %v", os.DevNull, after, before)
			}
			r.Acknowledge()
		})
	}
}

func fileModes(t *testing.T, names ...string) string {
	t.Helper()
	var out []string
	for _, name := range names {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, info.Mode().String())
	}
	return strings.Join(out, " ")
}
