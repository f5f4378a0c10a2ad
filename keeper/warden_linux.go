package keeper

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leadersFD is the descriptor on which a warden has the list of the leaders.
const leadersFD = 4

// wardenScript waits at the price of a shell, which is a tenth of that of a program like this one: it takes the orders as further
// arguments, and becomes the warden proper when the keeper is dead. Descriptor 3 is the program, also when its file was replaced; by its path it
// has its name too.
const wardenScript = `trap '' HUP INT TERM
while IFS= read -r order; do
	[ "$order" = ` + orderLeave + ` ] && exit 0
	set -- "$@" "$order"
done
[ "$0" -ef /proc/self/fd/3 ] && exec "$0" "$@"
exec /proc/self/fd/3 "$@"`

// warden is the keeper's side of its warden process, which lives as long as the keeper and a little longer.
type warden struct {
	program []string // what Options.Warden says
	dir     string
	logger  *slog.Logger
	mark    string // an environment entry

	mu    sync.Mutex
	told  []string // all orders: another one gets them all
	grace time.Duration
	pipe  *os.File // its standard input, whose other end closes with this process, whatever that dies of
	child *leader

	// leaders is a file in memory that the warden has too: the PID of each command that runs, by slot, 0 for none. A process of its group
	// or session that has cleared its environment is found by it.
	leaders *os.File
	slots   int   // of the list
	free    []int // slots
}

func newWarden(program []string, dir string, logger *slog.Logger) (*warden, error) {
	fd, err := unix.MemfdCreate("leaders", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the list of leaders: %w", err)
	}
	w := &warden{leaders: os.NewFile(uintptr(fd), "leaders"), program: program, dir: dir, logger: logger, mark: KeeperVariable + "=" + rand.Text(), grace: DefaultGrace}
	w.told = []string{orderMark + "=" + w.mark}
	return w, nil
}

// enter notes the leader of a command, and returns what leave wants when it has ended.
func (w *warden) enter(pid int) (slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.free); n > 0 {
		slot, w.free = w.free[n-1], w.free[:n-1]
	} else {
		slot, w.slots = w.slots, w.slots+1
	}
	w.writeLocked(slot, pid)
	return slot
}

func (w *warden) leave(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeLocked(slot, 0)
	w.free = append(w.free, slot)
}

func (w *warden) writeLocked(slot, pid int) {
	if _, err := w.leaders.WriteAt(binary.NativeEndian.AppendUint32(nil, uint32(pid)), int64(slot)*4); err != nil {
		w.logger.Error("the warden does not know the leader of a command", "pid", pid, "error", err)
	}
}

// start starts the process. It stays outside of the control group of the keeper, since it is to end that.
func (w *warden) start() error {
	if len(w.program) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	child, pipe, err := w.fork()
	if err == nil {
		_, err = pipe.WriteString(strings.Join(w.told, "\n") + "\n")
	}
	if err != nil {
		if pipe != nil {
			_ = pipe.Close() // nobody reads it
		}
		return fmt.Errorf("start the warden: %w", err)
	}
	w.child, w.pipe = child, pipe
	return nil
}

func (w *warden) fork() (child *leader, pipe *os.File, err error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, nil, err
	}
	defer self.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	orders, pipe, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer orders.Close()
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, nil, err
	}
	program, args := "/proc/self/exe", append([]string{path}, w.program...) // where there is no shell it waits itself
	if shell, err := exec.LookPath("sh"); err == nil {
		program, args = shell, append([]string{"sh", "-c", wardenScript}, args...)
	}
	closeInherited()
	attr := &syscall.ProcAttr{Dir: w.dir, Env: keeperEnviron(), Files: []uintptr{orders.Fd(), null.Fd(), null.Fd(), self.Fd(), w.leaders.Fd()}}
	err = children.fork(func() (pid int, err error) {
		if child, err = forkLeader(program, args, attr, false); err != nil {
			return 0, err
		}
		return child.pid, nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, pipe.Close())
	}
	return child, pipe, nil
}

// tell gives an order.
func (w *warden) tell(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tellLocked(name, value)
}

func (w *warden) tellLocked(name, value string) {
	order := name + "=" + value
	w.told = append(w.told, order)
	if w.pipe != nil {
		_, _ = w.pipe.WriteString(order + "\n") // one that is gone is replaced, and told everything
	}
}

// allow says how long a command may take to end.
func (w *warden) allow(grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if grace > w.grace {
		w.grace = grace
		w.tellLocked(orderGrace, grace.String())
	}
}

// keep starts another process when somebody has ended the one that is there, until ctx is done.
func (w *warden) keep(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		child, pipe := w.child, w.pipe
		w.child = nil
		w.mu.Unlock()
		if child == nil {
			if len(w.program) == 0 {
				return
			}
			if err := w.start(); err != nil {
				w.logger.Error("no warden: what commands leave would outlive a killed keeper; it is tried again", "error", err)
				pause(ctx, tryAgain)
			}
			continue
		}
		t := &target{held: child.held}
		if t.awaitExit(ctx, time.Time{}) == nil {
			_ = children.reap(child.pid, nil, nil) // it has exited
			_ = pipe.Close()
			w.logger.Warn("the warden was ended by somebody; another one is started", "pid", child.pid)
			pause(ctx, tryAgain)
		}
		child.close()
	}
}

// dismiss has the process end without doing anything: the keeper ends in order.
func (w *warden) dismiss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe == nil {
		return
	}
	_, _ = w.pipe.WriteString(orderLeave + "\n") // one that is gone does nothing either
	_ = w.pipe.Close()
	w.pipe = nil
}

// marked is an environment with the mark of this keeper, and that of no other.
func (w *warden) marked(env []string) []string {
	own := make([]string, 0, len(env)+1)
	for _, entry := range env {
		if !strings.HasPrefix(entry, KeeperVariable+"=") {
			own = append(own, entry)
		}
	}
	return append(own, w.mark)
}
