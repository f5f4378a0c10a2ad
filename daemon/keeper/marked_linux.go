package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// EndMarked ends all processes whose environment has every entry of mark: SIGTERM, SIGCONT, and
// SIGKILL after grace (0 is DefaultGrace). It is meant for processes that an earlier program has
// left behind.
//
// It returns when none is left, with the number of processes that ended. When ctx is done first, it
// returns the number so far and the error of ctx; the remaining processes have been sent SIGTERM.
// This process and its ancestors are never touched. Processes of other users are not seen, unless
// this process may read their environment (root). The processes spare and all their descendants are
// left alone. Linux only: elsewhere it returns errors.ErrUnsupported.
func EndMarked(ctx context.Context, mark []string, grace time.Duration, spare ...int) (ended int, err error) {
	return endMarked(ctx, &sweep{marks: mark, grace: grace}, spare)
}

// EndStrays is EndMarked for everything that daemons of one storage have started: processes with
// the mark of the storage whose JOBDIR_ID is the ID of an operation. The mark alone is no reason to
// end a process: a user may have set it to select this storage.
func EndStrays(ctx context.Context, mark string, grace time.Duration, spare ...int) (ended int, err error) {
	return endMarked(ctx, &sweep{marks: []string{mark}, named: true, grace: grace}, spare)
}

func endMarked(ctx context.Context, s *sweep, spare []int) (ended int, err error) {
	mark := s.marks
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
	s.killBy, s.spare = time.Now().Add(s.grace), map[int]bool{}
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
	if scan {
		s.marks = p.mark
	}
	return s.run(context.Background())
}
