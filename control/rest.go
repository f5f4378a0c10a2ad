package control

import (
	"context"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// waitsForPerson reports whether an operation goes on only when somebody acts: whoever waits for its end would wait for that person.
func waitsForPerson(state statefs.State) bool { return state.NeedsPerson() }

// awaitRest waits until an operation has ended, waits for a person who has not asked for anything yet, or comes after one that does, or until it is in one of the given states. The
// error is the cause of ctx, or why that cannot be told.
func (s *Server) awaitRest(ctx context.Context, f *follower, or ...statefs.State) error {
	behind := ancestors{server: s, of: f}
	defer behind.close()
	var patience <-chan time.Time // for a request that is carried out, but may be refused
	for lost := false; ; {
		snap, err := f.Snapshot()
		if err != nil {
			return err
		}
		person := waitsForPerson(f.state)
		if person && !lost && s.tree.AskedToGoOn(f.id) {
			if person = false; patience == nil {
				timer := time.NewTimer(carryOutTime)
				defer timer.Stop()
				patience = timer.C
			}
		}
		if snap.Ended || person || slices.Contains(or, f.state) || behind.needPerson() {
			return nil
		}
		select {
		case <-f.Wake():
		case <-patience:
			lost = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// carryOutTime is how long who waits for an operation believes in a request that makes it go on. It takes milliseconds.
const carryOutTime = 5 * time.Second

// mostBehind bounds how many operations are looked at that one comes after.
const mostBehind = 100

// personBehind returns the operation that waits for a person among those that one comes after, and those that they come after; none when
// none does. note is told of each before its state is asked for.
func (s *Server) personBehind(after []statefs.ID, note func(statefs.ID)) (none statefs.ID) {
	queue, seen := slices.Clone(after), map[statefs.ID]bool{}
	for i := 0; i < len(queue) && len(seen) < mostBehind; i++ {
		id := queue[i]
		if seen[id] {
			continue
		}
		seen[id] = true
		note(id)
		state, err := s.tree.State(id)
		if err == nil && waitsForPerson(state) {
			return id
		}
		if err != nil || state != statefs.Queued && state != statefs.Scheduled && state != statefs.Paused {
			continue // it has ended, or waits for no other one
		}
		if rec, err := s.tree.ReadRecord(id); err == nil && rec.Starts == 0 {
			queue = append(queue, rec.After...)
		}
	}
	return none
}

// ancestors are what a followed operation comes after: whoever waits for the end of that one is woken by their changes too.
type ancestors struct {
	server *Server
	of     *follower
	others map[statefs.ID]*follower
}

// needPerson reports whether the followed operation cannot start before somebody acts on another one.
func (a *ancestors) needPerson() bool {
	if a.of.state != statefs.Queued || len(a.of.after) == 0 {
		return false
	}
	person := a.server.personBehind(a.of.after, func(id statefs.ID) {
		if a.others[id] != nil {
			return
		}
		if a.others == nil {
			a.others = make(map[statefs.ID]*follower)
		}
		f := &follower{hub: a.server.hub, id: id, wake: a.of.wake, view: viewEnd}
		f.hub.join(f)
		a.others[id] = f
	})
	return !person.IsZero()
}

func (a *ancestors) close() {
	for _, f := range a.others {
		f.close()
	}
}
