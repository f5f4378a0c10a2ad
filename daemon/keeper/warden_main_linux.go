package keeper

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

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
		err = errors.New("it means nothing")
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
	s := &sweep{marks: []string{o.mark}, families: leaders(), until: at, grace: o.grace, killBy: time.Now().Add(o.grace)}
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
	log, err := os.OpenFile(o.log, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	if info, err := log.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = log.Close() // nothing was written
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
