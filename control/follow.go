package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// follower is one reader's view of one operation: the stream.Source of its stream. It keeps the header and nothing else of the
// record, and reads the record again only after something of the operation changed in jobs/. The daemon writes the terminal record
// before it removes the marker, so the event of the removal always finds it; a marker that somebody else removed it makes again
// before it ends the operation.
//
// Its methods belong to one goroutine; ring and changed are for everybody.
type follower struct {
	hub     *hub
	id      statefs.ID
	wake    chan struct{}
	changed atomic.Bool // something of it changed in jobs/ since the record was read
	view    view
	snap    stream.Snapshot
	state   statefs.State   // as the marker said it when the record was read; "" without one
	after   []statefs.ID    // what it comes after, as long as it has not started
	end     *statefs.Record // its record, once it has ended

	unlog    func()      // ends the subscription of the log; nil until it exists
	follows  bool        // the record is followed
	unrecord func()      // ends the subscription of the record
	record   os.FileInfo // the record that was read last

	untaken func() // ends the subscription of a request that is waited for

	unstep func() // ends the subscription of the progress file
	stepAt time.Time
	said   []byte // the progress in snap, without its time
}

// view is how much a reader sees of an operation, and is woken for.
type view int

const (
	viewEnd    view = iota // its end
	viewLog                // also the log
	viewDetail             // also state, progress and steps
)

// follow subscribes to an operation. The first look comes after it, so nothing is missed. The caller closes the follower.
func (h *hub) follow(id statefs.ID, view view) *follower {
	f := &follower{hub: h, id: id, wake: make(chan struct{}, 1), view: view}
	f.changed.Store(true)
	h.join(f)
	return f
}

func (f *follower) close() {
	f.hub.leave(f)
	if f.unlog != nil {
		f.unlog()
	}
	if f.unstep != nil {
		f.unstep()
	}
	if f.unrecord != nil {
		f.unrecord()
	}
	if f.untaken != nil {
		f.untaken()
	}
}

// lookAgain has the reader look at the operation as if its marker had changed.
func (f *follower) lookAgain() {
	f.changed.Store(true)
	f.ring()
}

// ring wakes the reader.
func (f *follower) ring() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Wake implements stream.Source.
func (f *follower) Wake() <-chan struct{} { return f.wake }

// Log implements stream.Source.
func (f *follower) Log() (*os.File, error) {
	if err := f.subscribeLog(); err != nil {
		return nil, err
	}
	return f.hub.tree.OpenLog(f.id)
}

// Snapshot implements stream.Source.
func (f *follower) Snapshot() (stream.Snapshot, error) {
	if f.follows && !f.snap.Ended {
		f.lookAtRecord()
	}
	if f.changed.Swap(false) && !f.snap.Ended {
		if err := f.look(); err != nil {
			return stream.Snapshot{}, err
		}
	}
	if f.view >= viewDetail && !f.snap.Ended {
		f.step()
	}
	return f.snap, nil
}

// look reads the record, and the marker where it matters.
func (f *follower) look() error {
	if f.view == viewEnd && f.state != "" {
		if sight, err := f.hub.tree.LookFor(f.id, statefs.NameOf(f.state)); err == nil && len(sight.States) == 1 {
			return nil // it stands where it stood
		}
	}
	end, err := f.hub.tree.EndOf(f.id)
	if err != nil {
		return err
	}
	if end != nil {
		f.state, f.end = "", end
		f.snap = stream.Snapshot{Header: end.Header, Footer: end.Footer, Ended: true, State: string(end.Status)}
		if end.LogBytes != nil {
			f.snap.LogBytes = *end.LogBytes
		}
		if f.view >= viewDetail {
			f.snap.Steps = shownSteps(end)
		}
		return f.checkSeal()
	}
	state, stateErr := f.hub.tree.State(f.id)
	f.state = state
	if f.view == viewEnd && stateErr == nil && len(f.snap.Header) > 0 {
		return nil // what else there is in the record is for its end
	}
	rec, err := f.hub.tree.ReadRecord(f.id)
	if err != nil {
		return err
	}
	f.after = nil
	if rec.Starts == 0 {
		f.after = rec.After
	}
	if len(f.snap.Header) == 0 {
		f.snap.Header = rec.Header
	}
	if errors.Is(stateErr, statefs.ErrNotLive) && rec.Status.Terminal() {
		f.lookAgain() // it ended between the two
	} else if stateErr != nil && !errors.Is(stateErr, statefs.ErrNotLive) {
		return stateErr
	}
	if stateErr == nil && f.view >= viewDetail {
		f.snap.State, f.snap.StalledAt = string(state), ""
		if rec.StalledAt != nil {
			f.snap.StalledAt = rec.StalledAt.Format(time.RFC3339Nano)
		}
		f.showSteps(rec)
	}
	if f.view >= viewLog {
		return f.subscribeLog()
	}
	return nil
}

// checkSeal refuses a log that is shorter than it was when the operation ended: what is missing must not look like an end.
func (f *follower) checkSeal() error {
	if f.view < viewLog || f.snap.LogBytes == 0 {
		return nil
	}
	info, err := os.Stat(f.hub.tree.LogPath(f.id))
	if err != nil {
		return fmt.Errorf("the log of %s, sealed at %d bytes, cannot be read: %w", f.id, f.snap.LogBytes, err)
	}
	if info.Size() < f.snap.LogBytes {
		return fmt.Errorf("the log of %s was sealed at %d bytes and has %d: it was damaged after the end", f.id, f.snap.LogBytes, info.Size())
	}
	return nil
}

// subscribeLog subscribes to the log once it exists. The daemon makes it before the marker says running, so the event of that
// leads here in time. What was written between an earlier read and the subscription was announced to nobody, so the reader is
// woken to read again.
func (f *follower) subscribeLog() error {
	if f.unlog != nil {
		return nil
	}
	unlog, err := f.hub.logs.Subscribe(f.hub.tree.LogPath(f.id), f.wake)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.unlog = unlog
	f.ring()
	return nil
}

// step reads the progress. The file is replaced each time it changes, which ends its subscription with a last wake.
func (f *follower) step() {
	progress, err := f.hub.tree.ReadProgress(f.id)
	if err != nil || progress.At.Equal(f.stepAt) {
		return // there is none, or it is being replaced: it is for show, and the next wake looks again
	}
	if f.unstep != nil {
		f.unstep()
		f.unstep = nil
	}
	path := f.hub.tree.ProgressPath(f.id)
	if cancel, err := f.hub.logs.Subscribe(path, f.wake); err == nil {
		f.unstep = cancel
		f.ring()
	}
	f.stepAt = progress.At
	f.show(progress)
}

// show keeps a progress that says something new. The file is also the heartbeat of the work, so its time alone is no news.
func (f *follower) show(p statefs.Progress) {
	beat := p
	beat.At = time.Time{}
	said, err := json.Marshal(beat)
	if err != nil || bytes.Equal(said, f.said) || f.said == nil && beat == (statefs.Progress{}) {
		return
	}
	if data, err := json.Marshal(p); err == nil {
		f.said, f.snap.Progress = said, data
	}
}
