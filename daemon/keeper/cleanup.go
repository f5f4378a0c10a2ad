package keeper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// finish runs when a link has ended for good: the pool is closed, or the keeper is dead. at is when
// that was first seen, in ticks since boot.
func (l *link) finish(at uint64) {
	l.disconnect()
	p := l.pool
	p.mu.Lock()
	if p.current == l {
		p.current = nil
	}
	l.mu.Lock()
	closed := p.ctx.Err() != nil || l.takenOver
	l.mu.Unlock()
	if !closed {
		delete(p.links, l)
	}
	p.mu.Unlock()
	if l.process != nil {
		l.process.close()
	}
	if closed {
		return // its commands go on
	}
	l.endCommands(at)
	said, _, err := clearNumber(p.Dir, l.number)
	if err != nil {
		p.Logger.Warn("something of a dead keeper is left", "keeper", l.number, "error", err)
	}
	p.report(l.number, said)
}

// endCommands ends the remaining processes of a dead keeper's commands. The kernel has killed their
// leaders.
func (l *link) endCommands(at uint64) {
	l.mu.Lock()
	lost := slices.DeleteFunc(slices.Collect(maps.Values(l.remotes)), (*remote).isDone)
	l.mu.Unlock()
	p := l.pool
	if len(lost) == 0 {
		return
	}
	p.Logger.Error("keeper died, ending what is left of its commands", "keeper", l.number, "commands", len(lost))
	err := p.endRemains(lost, at)
	if err != nil {
		p.Logger.Error("processes of a dead keeper not all ended", "keeper", l.number, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range lost {
		exit := Exit{Code: -1, At: time.Now(), Err: ErrKeeperDied}
		if err != nil {
			exit.Err = fmt.Errorf("%w; %w", ErrKeeperDied, err)
		}
		if r.Report != "" {
			if report, err := ReadReport(p.Dir, r.Report); err == nil && report.Key == r.Key {
				exit = report.exit() // it had ended before
			}
		}
		r.finish(exit)
	}
}

// endRemains ends the remaining processes of several commands in one search: the rest of their
// groups and sessions, and all processes that carry their marks.
//
// Their leaders lived until the keeper died, so their PIDs cannot have been reused before: a
// process that started before then and has such a PID as its group or session inherited it from the
// leader. A younger process counts only by its marks.
func (p *Pool) endRemains(lost []*remote, at uint64) error {
	s := &sweep{families: map[int]bool{}, until: at, spare: map[int]bool{}}
	for _, r := range lost {
		s.families[r.command.PID] = true
		if len(r.Mark) > 0 {
			s.marks = append(s.marks, r.Mark)
		}
		s.grace = max(s.grace, r.Grace)
	}
	for _, pid := range p.PIDs() {
		s.spare[pid] = true
	}
	s.killBy = time.Now().Add(s.grace)
	return s.run(context.WithoutCancel(p.ctx))
}
