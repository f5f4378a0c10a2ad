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
	"time"
)

// KeeperVariable is in the environment of every command of a keeper, with a value that is drawn for that keeper process: it leads the
// warden to what a killed keeper has left, and to nothing of another one.
const KeeperVariable = "JOBDIR_KEEPER"

// The orders of a keeper to its warden, each NAME=value in a line. The last one of a name counts.
const (
	orderMark  = "mark"  // an environment entry: who carries it is ended
	orderGroup = "group" // a control group: who is in it is ended
	orderGrace = "grace" // between SIGTERM and SIGKILL: the longest of any command
	orderLog   = "log"   // gets one line, when there was something to end
	orderLeave = "leave" // alone in a line: the keeper has ended in order, and so does the warden
)

// orders are what a warden carries out when its keeper is dead.
type orders struct {
	mark, group, log string
	grace            time.Duration
}

// Warden is the main function of the process that waits for the end of a keeper, which is the end of orders, and ends what a killed one has
// left: whatever its commands have started in groups and sessions of their own, which no parent-death signal reaches. begun are the
// orders that were read before. A keeper that ends in order says so, and then there is nothing to do.
//
// It needs no daemon. One that lives ends the same processes at the same time, which does no harm.
func Warden(ctx context.Context, begun []string, from io.Reader) error {
	if err := control("/proc/self", "comm", "jobdir-warden"); err != nil { // it may have been executed as a descriptor
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
		o.say(ended, err)
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
	// The leaders lived until the keeper died, so until then their numbers were their own: what is older and has such a number as its group or
	// session got it from one of them.
	at, err := now()
	if err != nil {
		return 0, fmt.Errorf("warden: read the clock: %w", err)
	}
	s := &sweep{marks: []string{o.mark}, families: leaders(), until: at, grace: o.grace, killBy: time.Now().Add(o.grace)}
	err = s.run(ctx)
	// What is in the control group and was not found has the same time to end, and mostly there is nothing.
	return s.ended, errors.Join(err, endGroup(o.group, o.grace))
}

// leaders reads the list that the keeper kept, as far as there is one.
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

// say writes to the log of the keeper, whose last words the next daemon repeats. One that is gone was read by a daemon that saw the end itself.
func (o *orders) say(ended int, cause error) {
	log, err := os.OpenFile(o.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(log, "the keeper died; processes of its commands that were left, and that its warden has ended: %d", ended) // nobody else is there to be told
	if cause != nil {
		_, _ = fmt.Fprintf(log, ", not all: %v", cause)
	}
	_, _ = fmt.Fprintln(log)
	_ = log.Close()
}
