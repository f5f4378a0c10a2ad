package statefs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// ErrNotLive is wrapped when an operation is not found or already finished.
var ErrNotLive = errors.New("not found or already finished")

// EndedError is the error of a request for an operation that has ended. It wraps ErrNotLive.
type EndedError struct {
	ID    ID
	State State
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("operation '%s' %s: it is already %s", e.ID, ErrNotLive, e.State)
}

// Unwrap returns ErrNotLive.
func (e *EndedError) Unwrap() error { return ErrNotLive }

// Request creates the request file in jobs/, removes the opposite request, and returns when that is
// durable. A repeated request has no further effect. The file gets a new inode each time, so the
// daemon sees it as new. args is nil or one JSON object. The error wraps ErrNotLive if the
// operation has no marker, and is a *BlockedError if a folder has the name of the file.
func (t *Tree) Request(_ context.Context, id ID, ask Action, args json.RawMessage) error {
	return t.RequestThen(id, ask, args, nil)
}

// RequestThen is Request, and calls made, unless it is nil, with the arguments in the file when the file exists and is
// not durable yet.
func (t *Tree) RequestThen(id ID, ask Action, args json.RawMessage, made func(args json.RawMessage)) error {
	if ask.indexIn(requests[:]) < 0 {
		return fmt.Errorf("request %q of %s: there is no such request", shorten(string(ask)), id)
	}
	args, err := compactObject(args)
	if err != nil {
		return fmt.Errorf("request %s of %s: %w", ask, id, err)
	}
	_, err = t.State(id)
	if errors.Is(err, ErrNotLive) {
		return t.notLiveError(id)
	}
	if err != nil {
		return fmt.Errorf("request %s of %s: %w", ask, id, err)
	}
	if err = t.writeRequest(id, ask, args); err == nil {
		if made != nil {
			made(args)
		}
		t.handover.notify(func(l SubmitListener) { l.Created(Name{ID: id, Action: ask}) })
		err = t.checkJobsFolder()
	}
	if err != nil {
		return fmt.Errorf("request %s of %s: %w", ask, id, t.jobsFolderCause(err))
	}
	return t.jobsSync.Sync()
}

// notLiveError returns the error for an operation without a marker, with its final state if the
// record has one (*EndedError). It wraps ErrNotLive.
func (t *Tree) notLiveError(id ID) error {
	if rec, err := t.ReadDurableEnd(id); err == nil && rec != nil {
		return &EndedError{ID: id, State: rec.Status}
	}
	return fmt.Errorf("operation '%s' %w", id, ErrNotLive)
}

// compactObject removes the line breaks of a JSON object, so that it fits on the second line of a
// request.
func compactObject(args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, args); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if line.Bytes()[0] != '{' {
		return nil, errors.New("arguments: not a JSON object")
	}
	return line.Bytes(), nil
}

func (t *Tree) writeRequest(id ID, ask Action, args json.RawMessage) error {
	// Without arguments the content needs no sync: an empty request file counts by its modification
	// time.
	write := t.files.ReplaceUnsynced
	if len(args) > 0 {
		write = func(name string, data []byte) error { return t.files.Replace(name, data, false) }
	}
	before, err := t.oppositeRequest(id, ask)
	if err != nil {
		return err
	}
	name := RequestName(id, ask)
	err = write(path.Join(jobsDir, name), formatStamp(t.options.Now(), args))
	if files.DiskFull(err) && len(args) == 0 {
		err = t.requestOnFullDisk(name)
	}
	if err != nil {
		if info, statErr := t.jobs.Lstat(name); statErr == nil && !info.Mode().IsRegular() {
			return &BlockedError{path.Join(jobsDir, name)}
		}
		return err
	}
	if before == nil {
		return nil
	}
	// If it was made again since, it is the later request and stays: its requester may have seen the effect of ours and
	// been answered.
	return removeUnchanged(t.jobs, RequestName(id, ask.Spec().Opposite), before)
}

// requestOnFullDisk creates a request in jobs/ without a data block: an empty file, which counts by
// its modification time, needs an inode only; if none is left, a link to an existing file needs not
// even that. The content of the linked file is not a time, so its modification time counts as well.
func (t *Tree) requestOnFullDisk(name string) error {
	err := t.files.ReplaceUnsynced(path.Join(jobsDir, name), nil)
	if files.DiskFull(err) && t.files.Link(storageFile, path.Join(jobsDir, name), t.options.Now()) == nil {
		return nil
	}
	return err
}

// oppositeRequest returns the pending request that a new one replaces, nil if there is none. Only a
// regular file is a request; a folder with that name is not touched.
func (j *jobsFolder) oppositeRequest(id ID, ask Action) (fs.FileInfo, error) {
	other := ask.Spec().Opposite
	if other == "" {
		return nil, nil
	}
	info, err := j.jobs.Lstat(RequestName(id, other))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	return info, err
}

// State returns the live state of an operation from its marker. The error wraps ErrNotLive if there
// is no marker; several observations are made, so that a marker that keeps being renamed does not
// count as missing.
func (t *Tree) State(id ID) (State, error) {
	states, err := t.observeMarkers(id)
	if err != nil {
		return "", err
	}
	if len(states) == 0 {
		return "", fmt.Errorf("operation '%s' %w", id, ErrNotLive)
	}
	return states[0], nil
}

// observeMarkers repeats the observation until it finds a marker, or until three observations found
// none and the modification time of jobs/ did not change during the last one. A single observation
// can miss a marker that is renamed from a name not yet checked to one already checked. If the
// record is terminal, the marker can only disappear, and the one observation is enough: a busy
// folder rarely stays unchanged for long.
func (t *Tree) observeMarkers(id ID) ([]State, error) {
	sight, err := t.Observe(id, AllMarkers)
	if err != nil || len(sight.States) > 0 {
		return sight.States, err
	}
	if rec, err := t.ReadDurableEnd(id); err == nil && rec != nil {
		return nil, nil
	}
	for n := range maxObservations {
		before, err := t.folder.Stat()
		if err != nil {
			return nil, err
		}
		sight, err := t.Observe(id, AllMarkers)
		if err != nil || len(sight.States) > 0 {
			return sight.States, err
		}
		after, err := t.folder.Stat()
		if err != nil {
			return nil, err
		}
		if n >= 1 && before.ModTime().Equal(after.ModTime()) { // it changes with every name in the folder
			break
		}
	}
	return nil, nil
}

// maxObservations bounds the retries for a marker that another program keeps renaming.
const maxObservations = 50

// ReadDurableEnd returns the record of a finished operation whose end is durable. It returns nil
// without an error if the operation is live or has no record. The marker is removed only after the
// sync of the record's folder: while a marker other than Trailing exists, a power cut may undo the
// end.
func (t *Tree) ReadDurableEnd(id ID) (*Record, error) {
	rec, err := t.ReadEnded(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // documented: there is no such end
	}
	if err != nil || rec == nil {
		return nil, err
	}
	sight, err := t.Observe(id, AllMarkers)
	if err != nil || len(sight.States) > 1 || len(sight.States) == 1 && sight.States[0] != Trailing {
		return nil, err
	}
	return rec, nil
}

// RequestSettleDelay returns how long the daemon should wait before it takes a request file without
// arguments, because its writer may be about to add them. quiet is how long the file must be
// unchanged; a file with a whole JSON object is settled at once.
func (j *jobsFolder) RequestSettleDelay(id ID, ask Action, quiet time.Duration) time.Duration {
	file := RequestName(id, ask)
	info, err := j.jobs.Lstat(file)
	if err != nil {
		return 0
	}
	age := j.options.Now().Sub(info.ModTime())
	if age >= quiet || age < -time.Hour { // the clock was set back
		return 0
	}
	if stamp, err := j.Stamp(file); err != nil || len(stamp.Args) > 0 {
		return 0
	}
	return max(quiet-age, time.Millisecond)
}

// UnblockRequested reports whether a request that ends the wait for a person is pending or being
// carried out.
func (j *jobsFolder) UnblockRequested(id ID) bool {
	return slices.ContainsFunc(requests[:], func(spec *ActionSpec) bool {
		return spec.unblocks() && j.RequestPending(id, spec.Action)
	})
}

// RequestPending reports whether one of these requests is pending or being carried out.
func (j *jobsFolder) RequestPending(id ID, asks ...Action) bool {
	return slices.ContainsFunc(asks, func(ask Action) bool {
		// Twice in jobs/: a starting daemon puts taken requests back.
		return j.Requested(id, ask) || j.isTaken(id, ask) || j.Requested(id, ask)
	})
}

// Requested reports whether a request file is in jobs/: the daemon has not taken it yet.
func (j *jobsFolder) Requested(id ID, ask Action) bool {
	_, err := j.jobs.Lstat(RequestName(id, ask))
	return err == nil
}

// HasTakenRequest reports whether the daemon is carrying out a request of an operation: its file is
// in taken/.
func (s *storage) HasTakenRequest(id ID) bool {
	return slices.ContainsFunc(Actions(), func(ask Action) bool { return s.isTaken(id, ask) })
}

// Cancelling returns the cancel requests of an operation that the daemon is carrying out. A cancel
// takes as long as the work needs to stop.
func (s *storage) Cancelling(id ID) []Action {
	return slices.DeleteFunc([]Action{Cancel, ForceCancel}, func(ask Action) bool { return !s.isTaken(id, ask) })
}

func (s *storage) isTaken(id ID, ask Action) bool {
	_, err := s.root.Lstat(path.Join(takenDir, RequestName(id, ask)))
	return err == nil
}
