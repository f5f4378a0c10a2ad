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

// leadersFD is the descriptor through which a warden reads the list of leaders.
const leadersFD = 4

// wardenScript waits in a shell, which needs a tenth of the memory of this program. It collects the
// orders as further arguments, and executes the warden proper when the keeper is dead. Descriptor 3
// is the program, even when its file was replaced; executed by its path, the process has the right
// name too.
const wardenScript = `trap '' HUP INT TERM
while IFS= read -r order; do
	[ "$order" = ` + orderLeave + ` ] && exit 0
	set -- "$@" "$order"
done
[ "$0" -ef /proc/self/fd/3 ] && exec "$0" "$@"
exec /proc/self/fd/3 "$@"`

// warden is the keeper's handle on its warden process, which lives slightly longer than the keeper.
type warden struct {
	program []string // Options.Warden
	dir     string
	logger  *slog.Logger
	mark    string // an environment entry

	mu         sync.Mutex
	sentOrders []string // all orders: a restarted warden gets them again
	grace      time.Duration
	pipe       *os.File // standard input of the warden; closed when the keeper dies
	child      *leader

	// leaders is a file in memory that is shared with the warden: the PID of each running command,
	// by slot, 0 for none. It identifies processes of a leader's group or session that have cleared
	// their environment.
	leaders *os.File
	slots   int   // length of the list
	free    []int // slots
}

func newWarden(program []string, dir string, logger *slog.Logger) (*warden, error) {
	fd, err := unix.MemfdCreate("leaders", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the list of leaders: %w", err)
	}
	w := &warden{
		leaders: os.NewFile(uintptr(fd), "leaders"), program: program, dir: dir, logger: logger,
		mark: KeeperVariable + "=" + rand.Text(), grace: DefaultGrace,
	}
	w.sentOrders = []string{orderMark + "=" + w.mark}
	return w, nil
}

// enter adds the leader of a command to the list, and returns the slot to pass to leave.
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

// start starts the warden process. It stays outside of the keeper's control group, because it has
// to end that group.
func (w *warden) start() error {
	if len(w.program) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	child, pipe, err := w.fork()
	if err == nil {
		_, err = pipe.WriteString(strings.Join(w.sentOrders, "\n") + "\n")
	}
	if err != nil {
		if pipe != nil {
			_ = pipe.Close() // no process reads it
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
	program, args := "/proc/self/exe", append([]string{path}, w.program...) // without a shell, the program itself waits
	if shell, err := exec.LookPath("sh"); err == nil {
		program, args = shell, append([]string{"sh", "-c", wardenScript}, args...)
	}
	closeInherited()
	attr := &syscall.ProcAttr{Dir: w.dir, Env: keeperEnviron(), Files: []uintptr{
		orders.Fd(), null.Fd(), null.Fd(),
		self.Fd(), w.leaders.Fd(),
	}}
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

// sendOrder sends an order to the warden.
func (w *warden) sendOrder(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendOrderLocked(name, value)
}

func (w *warden) sendOrderLocked(name, value string) {
	order := name + "=" + value
	w.sentOrders = append(w.sentOrders, order)
	if w.pipe != nil {
		_, _ = w.pipe.WriteString(order + "\n") // on an error the warden is dead; its replacement gets all orders
	}
}

// setGrace raises the warden's grace period if a command has a longer one.
func (w *warden) setGrace(grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if grace > w.grace {
		w.grace = grace
		w.sendOrderLocked(orderGrace, grace.String())
	}
}

// supervise restarts the warden whenever it dies, until ctx is done.
func (w *warden) supervise(ctx context.Context) {
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
				pause(ctx, reportRetryInterval)
			}
			continue
		}
		t := &target{pidfdProcess: child.process}
		if t.awaitExit(ctx, time.Time{}) == nil {
			_ = children.reap(child.pid, nil, nil) // it has exited
			_ = pipe.Close()
			w.logger.Warn("the warden was ended by somebody; another one is started", "pid", child.pid)
			pause(ctx, reportRetryInterval)
		}
		child.close()
	}
}

// dismiss makes the warden exit without doing anything: the keeper shuts down normally.
func (w *warden) dismiss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe == nil {
		return
	}
	_, _ = w.pipe.WriteString(orderLeave + "\n") // a dead warden does nothing either
	_ = w.pipe.Close()
	w.pipe = nil
}

// marked returns an environment with the mark of this keeper and no other keeper's.
func (w *warden) marked(env []string) []string {
	own := make([]string, 0, len(env)+1)
	for _, entry := range env {
		if !strings.HasPrefix(entry, KeeperVariable+"=") {
			own = append(own, entry)
		}
	}
	return append(own, w.mark)
}
