package keeper

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// remote is a command of a keeper.
type remote struct {
	link   *link // nil: only the exit report is left
	key    Key
	pid    int
	grace  time.Duration
	mark   []string
	report string
	label  string
	dir    string // the storage directory; empty while a keeper has the command
	done   chan struct{}

	exit  Exit   // read it after done is closed; before that, the lock of the link guards it
	cause string // of the first End; guarded by the lock of the link
}

func newRemote(l *link, c *command) *remote {
	mark, err := c.Mark.unpack()
	if err != nil {
		mark = nil // the mark is used only when the keeper dies
	}
	return &remote{
		link: l, key: c.Key, pid: c.PID, grace: c.Grace, mark: slices.Clip(mark), report: c.Report,
		label: string(c.Label), done: make(chan struct{}),
	}
}

// finish sets the end; only the first call counts. The caller holds the lock of the link.
func (r *remote) finish(exit Exit) {
	if !r.isDone() {
		r.exit = exit
		close(r.done)
	}
}

func (r *remote) isDone() bool { return isClosed(r.done) }

// handle is a remote as returned to one caller of Start.
type handle struct {
	*remote
	adopted bool
}

func (h *handle) PID() int              { return h.pid }
func (h *handle) Adopted() bool         { return h.adopted }
func (h *handle) Done() <-chan struct{} { return h.done }
func (h *handle) Stop() error           { return h.call("stop", request{Verb: verbStop}) }
func (h *handle) Continue() error       { return h.call("continue", request{Verb: verbContinue}) }
func (h *handle) SetTimeout(of time.Duration) error {
	return h.call("change the timeout of", request{Verb: verbTimeout, Timeout: of})
}

func (h *handle) Exit() Exit {
	<-h.done
	return h.exit
}

func (h *handle) call(what string, r request) error {
	err := ErrEnded
	if !h.isDone() {
		r.Key = &h.key
		err = h.link.request(context.Background(), r, &call{}, nil)
	}
	if err != nil {
		return fmt.Errorf("%s %s (PID %d): %w", what, h.key, h.pid, err)
	}
	return nil
}

func (h *handle) End(cause string)  { h.end(cause, false) }
func (h *handle) Kill(cause string) { h.end(cause, true) }

// end asks for the end of the command. The first call gives the cause; after it only a kill has an effect.
func (h *handle) end(cause string, force bool) {
	if h.isDone() {
		return
	}
	l := h.link
	l.mu.Lock()
	first := h.cause == ""
	h.cause = cmp.Or(h.cause, cause)
	cause = h.cause
	l.mu.Unlock()
	if first || force {
		l.post(request{Verb: verbEnd, Key: &h.key, Cause: cause, Force: force})
	}
}

func (h *handle) Acknowledge() {
	l := h.link
	if l == nil {
		_ = statefs.RemoveExit(h.dir, h.report) // a leftover report means nothing to a later run
		return
	}
	if !h.isDone() {
		return
	}
	l.mu.Lock()
	there := l.remotes[h.key] == h.remote
	delete(l.remotes, h.key)
	l.mu.Unlock()
	if there {
		l.post(request{Verb: verbTaken, Key: &h.key})
	}
}
