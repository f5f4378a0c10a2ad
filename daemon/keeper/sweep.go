package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cleanPasses is how many passes over /proc in a row must find nothing. One is not enough: a
// process may fork and exit between the listing and its examination.
const cleanPasses = 2

// maxLoadingPolls bounds how often, a millisecond apart, a process is polled whose program is just
// being loaded: it has no environment yet, and no event reports when it has.
const maxLoadingPolls = 200

// sweep ends the processes of a group and the processes that carry marks, each held by a pidfd.
type sweep struct {
	group *leader    // nil: marks alone
	marks [][]string // a process that carries all marks of one of these lists
	named bool       // the marks alone do not match: a process must also carry the ID of an operation
	since uint64     // processes that started earlier are ignored

	// The PIDs of the leaders of commands of a dead keeper, which cannot have been reused before until.
	families map[int]bool
	until    uint64
	spare    map[int]bool // descendants of these are ignored

	grace  time.Duration
	killBy time.Time // when SIGTERM becomes SIGKILL

	skip      map[int]bool
	processes processTable
	held      map[int]*target
	ended     int
	errs      []error
}

type target struct {
	*pidfdProcess
	killBy  time.Time // zero: no SIGTERM was sent yet
	killed  bool
	refused bool // it may not be signalled
}

// run returns when no matching process is left, the context is done, or /proc cannot be read.
func (s *sweep) run(ctx context.Context) error {
	line, err := ownAncestors()
	if err != nil {
		return fmt.Errorf("search processes: %w", err)
	}
	s.skip, s.held = line, map[int]*target{}
	defer s.close()
	loading := 0
	for clean := 0; clean < cleanPasses; {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(s.errs, err)...)
		}
		settled, err := s.pass()
		found := s.waitedFor()
		s.signal(found)
		switch {
		case err != nil:
			return errors.Join(append(s.errs, fmt.Errorf("search processes: %w", err))...)
		case len(found) > 0:
			clean = 0
			s.await(ctx, found)
		case !settled && loading < maxLoadingPolls:
			loading++
			pause(ctx, time.Millisecond)
		default:
			clean++
		}
	}
	return errors.Join(s.errs...)
}

// pass examines every process once and holds the matching ones. settled is false when one had no
// environment yet.
func (s *sweep) pass() (settled bool, err error) {
	for pid, t := range s.held {
		if t.exited() {
			s.drop(pid)
		}
	}
	if err := s.processes.list(); err != nil {
		return false, err
	}
	settled = true
	for i := range s.processes.rows {
		row := &s.processes.rows[i]
		if s.skip[row.pid] || row.olderThan(s.since) || s.held[row.pid] != nil {
			continue
		}
		match, loading, err := s.match(row)
		if err != nil {
			return false, err
		}
		if loading {
			settled = false
		}
		if match {
			if err := s.take(row); err != nil {
				return false, err
			}
		}
	}
	return settled, nil
}

// match reports whether the process that has the PID of row now is to be ended. It notes in row when
// the process started.
func (s *sweep) match(row *processRow) (match, loading bool, err error) {
	pid := row.pid
	st, err := readStat(pid)
	if errors.Is(err, errGone) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	row.start = st.start
	if st.kernel() || st.start < s.since {
		return false, false, nil
	}
	if s.group != nil && st.group == s.group.pid && s.group.groupLives() {
		// The group still lives after st was read, so st.group was its number.
		return true, false, nil
	}
	if st.zombie() {
		return false, false, nil
	}
	if (s.families[st.group] || s.families[st.session]) && st.start <= s.until {
		return !s.spared(pid), false, nil
	}
	if len(s.marks) == 0 {
		return false, false, nil
	}
	environ, loading, err := readEnviron(pid, st)
	found := slices.ContainsFunc(s.marks, func(marks []string) bool { return hasMarks(environ, marks) })
	return found && (!s.named || namesOperation(environ)) && !s.spared(pid), loading, err
}

// spared reports whether a process is one of s.spare or descends from one.
func (s *sweep) spared(pid int) bool {
	if len(s.spare) == 0 {
		return false
	}
	for from := pid; from > 1; {
		if s.spare[from] {
			return true
		}
		st, err := readStat(from)
		switch {
		case err == nil:
			from = st.parent
		case from == pid:
			return true // it has exited
		default:
			from = pid // a parent died just now: read which process has taken its place
		}
	}
	return false
}

// take holds a process that matched and compares again: a process that is alive afterwards is the
// one compared.
func (s *sweep) take(row *processRow) error {
	pid := row.pid
	h, err := openPidfd(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hold process %d: %w", pid, err)
	}
	match, _, err := s.match(row)
	if err != nil || !match || h.exited() {
		h.close()
		return err
	}
	s.held[pid] = &target{pidfdProcess: h}
	return nil
}

// waitedFor returns the held processes that may be signalled.
func (s *sweep) waitedFor() []*target {
	var found []*target
	for _, t := range s.held {
		if !t.refused {
			found = append(found, t)
		}
	}
	// Parents mostly have the lower PIDs. A shell that outlives its child writes about that in the
	// log, so signal parents first.
	slices.SortFunc(found, func(a, b *target) int { return cmp.Compare(a.pid, b.pid) })
	return found
}

// signal sends SIGTERM to the processes that have not had it, and SIGKILL to those whose grace
// period is over.
func (s *sweep) signal(found []*target) {
	now := time.Now()
	if s.group != nil && !now.Before(s.killBy) && len(found) > 0 {
		// To all at once, so that none can fork in between. Processes that may not be signalled are
		// found one by one below.
		_ = s.group.signalGroup(unix.SIGKILL)
	}
	for _, t := range found {
		var err error
		if t.killBy.IsZero() {
			err = s.terminate(t, now)
		}
		if !now.Before(t.killBy) && !t.killed {
			t.killed = true
			err = errors.Join(err, t.signal(unix.SIGKILL))
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			t.refused = true
			s.errs = append(s.errs, err)
		}
	}
}

// terminate sends SIGTERM and SIGCONT to t, unless the group has had them as a whole.
func (s *sweep) terminate(t *target, now time.Time) error {
	if s.inGroup(t) {
		t.killBy = s.killBy
		return nil
	}
	if t.killBy = now.Add(s.grace / 10); t.killBy.Before(s.killBy) {
		t.killBy = s.killBy
	}
	return errors.Join(t.signal(unix.SIGTERM), t.signal(unix.SIGCONT))
}

func (s *sweep) inGroup(t *target) bool {
	if s.group == nil {
		return false
	}
	st, err := readStat(t.pid)
	return err == nil && st.group == s.group.pid
}

// await returns when all of found have exited, when one of them is due for SIGKILL, or when the
// context is done.
func (s *sweep) await(ctx context.Context, found []*target) {
	var next time.Time // zero, which means forever, when all were killed
	for _, t := range found {
		if !t.killed && (next.IsZero() || t.killBy.Before(next)) {
			next = t.killBy
		}
	}
	for _, t := range found {
		if t.awaitExit(ctx, next) != nil {
			return
		}
	}
}

func (s *sweep) drop(pid int) {
	s.held[pid].close()
	delete(s.held, pid)
	s.ended++
}

func (s *sweep) close() {
	for _, t := range s.held {
		t.close()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// EndMarked ends all processes whose environment has every entry of mark: SIGTERM, SIGCONT, and
// SIGKILL after grace (0 is DefaultGrace). It is meant for processes that an earlier program has
// left behind.
//
// It returns when none is left, with the number of processes that ended. When ctx is done first, it
// returns the number so far and the error of ctx; the remaining processes have been sent SIGTERM.
// This process and its ancestors are never touched. Processes of other users are not seen, unless
// this process may read their environment (root). The processes spare and all their descendants are
// left alone.
func EndMarked(ctx context.Context, mark []string, grace time.Duration, spare ...int) (ended int, err error) {
	return endMarked(ctx, &sweep{grace: grace}, mark, spare)
}

// EndStrays is EndMarked for everything that daemons of one storage have started: processes with
// the mark of the storage whose JOBDIR_ID is the ID of an operation. The mark alone is no reason to
// end a process: a user may have set it to select this storage.
func EndStrays(ctx context.Context, mark string, grace time.Duration, spare ...int) (ended int, err error) {
	return endMarked(ctx, &sweep{named: true, grace: grace}, []string{mark}, spare)
}

func endMarked(ctx context.Context, s *sweep, mark []string, spare []int) (ended int, err error) {
	if len(mark) == 0 {
		return 0, errors.New("end marked processes: no mark is given")
	}
	if i := slices.IndexFunc(mark, func(m string) bool { return strings.Index(m, "=") < 1 }); i >= 0 {
		return 0, fmt.Errorf("end marked processes: mark %q is not NAME=value", mark[i])
	}
	if s.grace < 0 {
		return 0, fmt.Errorf("end marked processes: grace period %s is negative", s.grace)
	}
	s.grace = cmp.Or(s.grace, DefaultGrace)
	s.marks, s.killBy, s.spare = [][]string{mark}, time.Now().Add(s.grace), map[int]bool{}
	for _, pid := range spare {
		s.spare[pid] = true
	}
	if err := s.run(ctx); err != nil {
		return s.ended, fmt.Errorf("end processes marked %s: %w", strings.Join(mark, " "), err)
	}
	return s.ended, nil
}

// endRest ends the rest of the group and, with scan, all processes that carry the marks.
func (p *Process) endRest(scan bool, killBy time.Time) error {
	s := &sweep{group: p.leader, since: p.since, grace: p.grace, killBy: killBy}
	if scan && len(p.mark) > 0 {
		s.marks = [][]string{p.mark}
	}
	return s.run(context.Background())
}
