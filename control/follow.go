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
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// follower is one reader's view of one operation, and the stream.Source of its stream. It keeps only the header of the
// record, and reads the record again when the operation's files in jobs/ change. The daemon writes the terminal record
// before it removes the marker, so the removal event always finds it. If another program removes the marker, the daemon
// creates it again before it ends the operation.
//
// One goroutine calls the methods, except notify and markChanged, which are safe for concurrent use.
type follower struct {
	hub     *hub
	id      statefs.ID
	wake    chan struct{}
	changed atomic.Bool // its files in jobs/ changed since the record was read
	view    view
	snap    stream.Snapshot
	state   statefs.State   // from the marker when the record was read; "" without a marker
	after   []statefs.ID    // the operations it depends on, until it has started
	end     *statefs.Record // the terminal record

	unsubscribe  [followedFiles]func() // ends the subscriptions of files
	unfollow     func()                // ends the registration with the daemon; nil without one
	follows      bool                  // whether the record file is followed too
	record       os.FileInfo           // the record file that was read last
	progressAt   time.Time
	lastProgress []byte // the progress in snap, without its time
}

// followedFile is a file whose changes wake a follower too.
type followedFile int

const (
	theLog followedFile = iota
	theRecord
	theProgress
	followedFiles
)

// subscribe follows the file that is at path now, in place of the one before it.
func (f *follower) subscribe(file followedFile, path string) error {
	f.leave(file)
	cancel, err := f.hub.logs.Subscribe(path, f.wake)
	if err == nil {
		f.unsubscribe[file] = cancel
	}
	return err
}

func (f *follower) leave(file followedFile) {
	if cancel := f.unsubscribe[file]; cancel != nil {
		cancel()
	}
	f.unsubscribe[file] = nil
}

// view is which parts of an operation a reader sees, and is woken for.
type view int

const (
	viewEnd    view = iota // its end
	viewLog                // also the log
	viewDetail             // also state, progress and steps
)

// follow subscribes to an operation. The first read comes after the subscription, so no change is missed. The caller
// closes the follower.
func (h *hub) follow(id statefs.ID, view view) *follower {
	f := &follower{hub: h, id: id, wake: make(chan struct{}, 1), view: view}
	f.changed.Store(true)
	h.subscribe(f)
	return f
}

func (f *follower) close() {
	if f.unfollow != nil {
		f.unfollow()
	}
	f.hub.unsubscribe(f)
	for file := range followedFiles {
		f.leave(file)
	}
}

// markChanged makes the reader read the operation again, as if its marker had changed.
func (f *follower) markChanged() {
	f.changed.Store(true)
	notify.Wake(f.wake)
}

// Wake implements stream.Source.
func (f *follower) Wake() <-chan struct{} { return f.wake }

// Log implements stream.Source.
func (f *follower) Log() (*os.File, error) {
	if err := f.subscribeLog(); err != nil {
		return nil, err
	}
	log, err := f.hub.tree.OpenLog(f.id)
	if errors.Is(err, files.ErrIrregular) && !f.snap.Ended {
		// The daemon moves the irregular file away when the work begins.
		return nil, &fs.PathError{Op: "open", Path: f.hub.tree.LogPath(f.id), Err: fs.ErrNotExist}
	}
	return log, err
}

// Snapshot implements stream.Source.
func (f *follower) Snapshot() (stream.Snapshot, error) {
	if f.follows && !f.snap.Ended {
		f.resubscribeRecord()
	}
	if f.changed.Swap(false) && !f.snap.Ended {
		if err := f.refresh(); err != nil {
			return stream.Snapshot{}, err
		}
	}
	if f.view >= viewDetail && !f.snap.Ended {
		f.refreshProgress()
	}
	return f.snap, nil
}

// refresh reads the record, and the marker where the view needs it.
func (f *follower) refresh() error {
	if f.view == viewEnd && f.state != "" {
		if sight, err := f.hub.tree.Observe(f.id, statefs.MarkerBit(f.state)); err == nil && len(sight.States) == 1 {
			return nil // the state is unchanged
		}
	}
	end, err := f.hub.tree.ReadDurableEnd(f.id)
	if err != nil {
		return err
	}
	if end != nil {
		return f.takeEnd(end)
	}
	state, stateErr := f.hub.tree.State(f.id)
	f.state = state
	if f.view == viewEnd && stateErr == nil && len(f.snap.Header) > 0 {
		return nil // this view needs only the end of the record
	}
	rec, err := readRecord(f.hub.tree, f.id, stateErr == nil)
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
		f.markChanged() // the operation ended between the two reads
	} else if stateErr != nil && !errors.Is(stateErr, statefs.ErrNotLive) {
		return stateErr
	}
	if stateErr == nil && f.view >= viewDetail {
		f.updateDetails(rec, state)
	}
	if f.view >= viewLog {
		return f.subscribeLog()
	}
	return nil
}

// takeEnd stores the terminal record.
func (f *follower) takeEnd(end *statefs.Record) error {
	f.state, f.end = "", end
	f.snap = stream.Snapshot{Header: end.Header, Footer: end.Footer, Ended: true, State: string(end.Status)}
	if end.LogBytes != nil {
		f.snap.LogBytes = *end.LogBytes
	}
	if f.view >= viewDetail {
		f.snap.Steps = stepEvents(end)
	}
	return f.checkSeal()
}

// checkSeal refuses a log that is shorter than at the end of the operation: a truncated log must not look complete.
func (f *follower) checkSeal() error {
	if f.view < viewLog || f.snap.LogBytes == 0 {
		return nil
	}
	info, err := os.Stat(f.hub.tree.LogPath(f.id))
	if err != nil {
		return fmt.Errorf("the log of %s, sealed at %d bytes, cannot be read: %w", f.id, f.snap.LogBytes, err)
	}
	if info.Size() < f.snap.LogBytes {
		return fmt.Errorf("the log of %s was sealed at %d bytes and has %d: it was damaged after the end", f.id,
			f.snap.LogBytes, info.Size())
	}
	return nil
}

// subscribeLog subscribes to the log once it exists. The daemon creates the log before it sets the marker to running,
// so the event of that transition leads here in time. No event announces what was written between an earlier read and
// the subscription, so subscribeLog wakes the reader to read again.
func (f *follower) subscribeLog() error {
	if f.unsubscribe[theLog] != nil {
		return nil
	}
	path := f.hub.tree.LogPath(f.id)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil // the daemon moves the irregular file away and creates the log
	}
	err := f.subscribe(theLog, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		notify.Wake(f.wake)
	}
	return err
}

// refreshProgress reads the progress. Each change replaces the file, which ends its subscription with a last wake.
func (f *follower) refreshProgress() {
	progress, err := f.hub.tree.ReadProgress(f.id)
	if err != nil || progress.At.Equal(f.progressAt) {
		return // missing, being replaced or unchanged: it is informational, and the next wake reads it again
	}
	if f.subscribe(theProgress, f.hub.tree.ProgressPath(f.id)) == nil {
		notify.Wake(f.wake)
	}
	f.progressAt = progress.At
	f.updateProgress(progress)
}

// updateProgress stores a progress whose content is new. The file is also the heartbeat of the work, so a new time
// alone is no change.
func (f *follower) updateProgress(p statefs.Progress) {
	beat := p
	beat.At = time.Time{}
	said, err := json.Marshal(beat)
	if err != nil || bytes.Equal(said, f.lastProgress) || f.lastProgress == nil && beat == (statefs.Progress{}) {
		return
	}
	if data, err := json.Marshal(p); err == nil {
		f.lastProgress, f.snap.Progress = said, data
	}
}

// A step changes without a change in jobs/, so a follower of steps also follows the record file. Each change replaces
// the file, which ends its subscription with a last wake, as with the progress file.

// resubscribeRecord subscribes to the current record file, and marks the operation as changed if the file was replaced.
func (f *follower) resubscribeRecord() {
	path := f.hub.tree.RecordPath(f.id)
	info, err := os.Stat(path)
	if err != nil || f.record != nil && os.SameFile(info, f.record) && info.Size() == f.record.Size() &&
		info.ModTime().Equal(f.record.ModTime()) {
		return // deleted or unchanged
	}
	f.record = info
	_ = f.subscribe(theRecord, path)
	f.markChanged() // it may have been replaced before the subscription; without one, other wakes lead here too
}

// updateDetails updates what only viewDetail shows, and follows the record file if the operation has steps.
func (f *follower) updateDetails(rec *statefs.Record, state statefs.State) {
	f.snap.State, f.snap.StalledAt = string(state), ""
	if rec.StalledAt != nil {
		f.snap.StalledAt = rec.StalledAt.Format(time.RFC3339Nano)
	}
	if len(rec.Steps) == 0 {
		return
	}
	if !f.follows {
		f.follows = true
		f.resubscribeRecord()
	}
	f.snap.Steps = stepEvents(rec)
}

// stepEvents returns the steps of an operation as event data, nil without steps.
func stepEvents(rec *statefs.Record) [][]byte {
	if len(rec.Steps) == 0 {
		return nil
	}
	shown := make([][]byte, 0, len(rec.Steps))
	for i := range rec.Steps {
		s := &rec.Steps[i]
		data := api.Step{
			ID: rec.ID, Step: s.Name, Status: s.Status, Number: i + 1, Total: len(rec.Steps), Run: s.Run, Retries: s.Retries,
			Optional:  s.Optional,
			ErrorCode: s.ErrorCode, Error: s.ErrorMessage, Reason: s.Reason,
		}
		if s.Status != steps.Running {
			if took, begun := s.Duration(rec.UpdatedAt); begun {
				data.Seconds = new(took.Seconds())
			}
		}
		line, err := json.Marshal(data)
		if err != nil {
			return nil // unreachable: strings and numbers always encode
		}
		shown = append(shown, line)
	}
	return shown
}
