package keeper

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
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
	w.mu.Lock()
	defer w.mu.Unlock()
	child, pipe, err := w.fork()
	if err != nil {
		return fmt.Errorf("start the warden: %w", err)
	}
	w.child, w.pipe = child, pipe
	return nil
}

// fork starts the process with all orders in its pipe: it has them even if the keeper dies right after.
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
	defer func() {
		if err != nil {
			err = errors.Join(err, pipe.Close())
			pipe = nil
		}
	}()
	if _, err := pipe.WriteString(strings.Join(w.sentOrders, "\n") + "\n"); err != nil {
		return nil, pipe, err
	}
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, pipe, err
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
	child, err = children.fork(program, args, attr, false)
	return child, pipe, err
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
			if err := w.start(); err != nil {
				w.logger.Error("no warden: what commands leave would outlive a killed keeper; retrying", "error", err)
				pause(ctx, reportRetryInterval)
			}
			continue
		}
		if child.awaitExit(ctx, time.Time{}) == nil {
			_ = children.reap(child.pid, nil, nil) // it has exited
			_ = pipe.Close()
			w.logger.Warn("the warden was killed, starting another", "pid", child.pid)
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
	other := func(entry string) bool { return strings.HasPrefix(entry, KeeperVariable+"=") }
	return append(slices.DeleteFunc(slices.Clone(env), other), w.mark)
}

// KeeperVariable is in the environment of every command of a keeper, with a random value for that
// keeper process. It leads the warden to the processes of its own dead keeper, and to no others.
const KeeperVariable = "JOBDIR_KEEPER"

// The orders of a keeper to its warden, one line of NAME=value each. The last one of a name counts.
const (
	orderMark  = "mark"  // an environment entry: processes that carry it are ended
	orderGroup = "group" // a control group: its processes are ended
	orderGrace = "grace" // between SIGTERM and SIGKILL: the longest of any command
	orderLog   = "log"   // a file that gets one line when processes had to be ended
	orderLeave = "leave" // alone in a line: the keeper has shut down normally, and the warden exits
)

// orders are what a warden carries out when its keeper is dead.
type orders struct {
	mark, group, log string
	grace            time.Duration
}

// Warden is the main function of the warden process. It waits for the end of its orders, which is
// the end of the keeper. After a killed keeper it ends the processes that its commands have started
// in groups and sessions of their own, which no parent-death signal reaches. A keeper that shuts
// down normally sends orderLeave first, and then there is nothing to do. begun are the orders that
// were read before.
//
// It needs no daemon. A daemon that runs ends the same processes at the same time, which does no
// harm.
func Warden(ctx context.Context, begun []string, from io.Reader) error {
	if err := writeControlFile("/proc/self", "comm", "jobdir-warden"); err != nil {
		// It may have been executed through a descriptor, which gives it another name.
		return fmt.Errorf("name the process: %w", err)
	}
	o := orders{grace: DefaultGrace}
	for _, line := range begun {
		if err := o.take(line); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if lines.Text() == orderLeave {
			return nil
		}
		if err := o.take(lines.Text()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("warden: read the orders of the keeper: %w", err)
	}
	ended, err := o.carryOut(ctx)
	if ended > 0 || err != nil {
		o.logResult(ended, err)
	}
	return err
}

func (o *orders) take(line string) (err error) {
	name, value, _ := strings.Cut(line, "=")
	switch name {
	case orderMark:
		o.mark = value
	case orderGroup:
		o.group = value
	case orderLog:
		o.log = value
	case orderGrace:
		o.grace, err = time.ParseDuration(value)
	default:
		err = errors.New("unknown message")
	}
	if err != nil {
		return fmt.Errorf("warden: order %q: %w; keepers start wardens by themselves", line, err)
	}
	return nil
}

func (o *orders) carryOut(ctx context.Context) (ended int, err error) {
	if o.mark == "" {
		return 0, errors.New("warden: no mark was given")
	}
	// The leaders lived until the keeper died, so their PIDs cannot have been reused before: an
	// older process with such a PID as its group or session got it from one of them.
	at, err := now()
	if err != nil {
		return 0, fmt.Errorf("warden: read the clock: %w", err)
	}
	s := &sweep{
		marks: [][]string{{o.mark}}, families: leaders(), until: at, grace: o.grace, killBy: time.Now().Add(o.grace),
	}
	err = s.run(ctx)
	// Processes in the control group that were not found get the same grace period. Mostly there
	// are none.
	return s.ended, errors.Join(err, endGroup(o.group, o.grace))
}

// leaders reads the keeper's list, as far as there is one.
func leaders() map[int]bool {
	list, err := io.ReadAll(io.NewSectionReader(os.NewFile(leadersFD, "leaders"), 0, 1<<30))
	found := make(map[int]bool)
	for err == nil && len(list) >= 4 {
		if pid := int(binary.NativeEndian.Uint32(list)); pid > 0 {
			found[pid] = true
		}
		list = list[4:]
	}
	return found
}

// logResult writes to the keeper's log, whose end the next daemon logs. If the log is gone, a
// daemon has already seen the keeper's death itself.
func (o *orders) logResult(ended int, cause error) {
	log, err := openLog(o.log, 0)
	if err != nil {
		return
	}
	// An error cannot be reported anywhere.
	_, _ = fmt.Fprintf(log, "the keeper died; processes of its commands that were left, and that its warden has ended: %d",
		ended)
	if cause != nil {
		_, _ = fmt.Fprintf(log, ", not all: %v", cause)
	}
	_, _ = fmt.Fprintln(log)
	_ = log.Close()
}
