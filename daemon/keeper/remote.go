package keeper

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// remote is a command of a keeper.
type remote struct {
	command        // as the keeper described it first
	link    *link  // nil: only the exit report is left
	dir     string // the storage directory; empty while a keeper has the command
	done    chan struct{}

	exit  Exit   // read it after done is closed; before that, the lock of the link guards it
	cause string // of the first End; guarded by the lock of the link
}

// finish sets the end; only the first call counts. The caller holds the lock of the link.
func (r *remote) finish(exit Exit) {
	if !r.isDone() {
		r.exit = exit
		close(r.done)
	}
}

func (r *remote) isDone() bool { return notify.IsClosed(r.done) }

func (r *remote) PID() int              { return r.command.PID }
func (r *remote) Done() <-chan struct{} { return r.done }
func (r *remote) Stop() error           { return r.call("stop", verbStop) }
func (r *remote) Continue() error       { return r.call("continue", verbContinue) }

func (r *remote) Exit() Exit {
	<-r.done
	return r.exit
}

func (r *remote) call(what string, verb verb) error {
	err := ErrEnded
	if !r.isDone() {
		err = r.link.request(context.Background(), request{Verb: verb, Key: r.Key}, &call{}, nil)
	}
	if err != nil {
		return fmt.Errorf("%s %s (PID %d): %w", what, r.Key, r.command.PID, err)
	}
	return nil
}

func (r *remote) End(cause string)  { r.end(cause, false) }
func (r *remote) Kill(cause string) { r.end(cause, true) }

// end asks for the end of the command. The first call gives the cause; after it only a kill has an effect.
func (r *remote) end(cause string, force bool) {
	if r.isDone() {
		return
	}
	l := r.link
	l.mu.Lock()
	first := r.cause == ""
	r.cause = cmp.Or(r.cause, cause)
	cause = r.cause
	l.mu.Unlock()
	if first || force {
		l.post(request{Verb: verbEnd, Key: r.Key, Cause: cause, Force: force})
	}
}

func (r *remote) Acknowledge() {
	l := r.link
	if l == nil {
		_ = statefs.RemoveExit(r.dir, r.Report) // a leftover report means nothing to a later run
		return
	}
	if !r.isDone() {
		return
	}
	l.mu.Lock()
	there := l.remotes[r.Key] == r
	delete(l.remotes, r.Key)
	l.mu.Unlock()
	if there {
		l.post(request{Verb: verbTaken, Key: r.Key})
	}
}
