package statefs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
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

// BlockedError reports that a request cannot be created, because its name is not a regular file.
type BlockedError struct{ File string }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s is no regular file: remove it, or ask again when the daemon has moved it to %s/", e.File,
		corruptDir)
}

// Request creates the request file in jobs/, removes the opposite request, and returns when that is
// durable. A repeated request has no further effect. The file gets a new inode each time, so the
// daemon sees it as new. args is nil or one JSON object. The error wraps ErrNotLive if the
// operation has no marker, and is a *BlockedError if a folder has the name of the file.
func (t *Tree) Request(_ context.Context, id ID, ask Action, args json.RawMessage) error {
	return t.RequestThen(id, ask, args, func(json.RawMessage) {})
}

// RequestThen is Request, and calls made with the arguments in the file when it exists and is not durable yet.
func (t *Tree) RequestThen(id ID, ask Action, args json.RawMessage, made func(args json.RawMessage)) error {
	if ask.index() < 0 {
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
		made(args)
		t.handover.activeListener().Created(Name{ID: id, Action: ask})
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

// removeUnchanged removes a file unless it was removed or written since it was seen.
func removeUnchanged(root *os.Root, name string, seen fs.FileInfo) error {
	now, err := root.Lstat(name)
	if err == nil && sameContent(seen, now) {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

// StampFormat is the first line of every state and request file: ISO 8601 with microseconds and offset.
const StampFormat = "2006-01-02T15:04:05.000000-07:00"

// clockSlack is how far the first line of a request may be ahead of its modification time, which
// comes from a coarser clock, perhaps of another machine.
const clockSlack = 2 * time.Second

// Stamp is the content of a state or request file.
type Stamp struct {
	// At is when the file was created: its first line, or its modification time if that line holds
	// no time.
	At time.Time
	// Args is the JSON object on the second line of a request, nil if there is none.
	Args json.RawMessage

	// Malformed means that the file contains something other than a time and one JSON object. A
	// request without arguments is still valid: its name is enough.
	Malformed bool

	// futureAt is the time of a request that is in the future; zero for all others.
	futureAt time.Time
}

// Compare orders two requests by time. Requests of the future all count as made now but keep their
// own order: the clock may have been set back after both were made.
func (s Stamp) Compare(other Stamp) int {
	if !s.futureAt.IsZero() && !other.futureAt.IsZero() {
		return s.futureAt.Compare(other.futureAt)
	}
	return s.At.Compare(other.At)
}

// formatStamp returns the content of a state or request file.
func formatStamp(at time.Time, args json.RawMessage) []byte {
	out := append([]byte(at.Format(StampFormat)), '\n')
	if len(args) > 0 {
		out = append(append(out, args...), '\n')
	}
	return out
}

// parseStamp parses the content of a state or request file whose modification time is modified. It
// never fails: without a time in the file, the modification time counts, because `echo >
// ID.pause_requested` must work like `touch`.
func parseStamp(content []byte, modified time.Time) Stamp {
	stamp := Stamp{At: modified}
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	if at, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSpace(first))); err == nil {
		stamp.At, content = at, rest
	}
	content = bytes.TrimSpace(content)
	line, _, _ := bytes.Cut(content, []byte("\n"))
	for _, text := range [][]byte{content, bytes.TrimSpace(line)} {
		// the object may span several lines; text after it is ignored
		var args bytes.Buffer
		if len(text) > 0 && text[0] == '{' && json.Compact(&args, text) == nil {
			stamp.Args = args.Bytes()
			return stamp
		}
	}
	stamp.Malformed = len(content) > 0
	return stamp
}

// lastRequested returns the stamp with the time of the last request: the later of the first line
// and the modification time, so that a `touch` of a pending request repeats it. A first line in the
// future would win over every request until then, so the modification time counts instead; a
// modification time in the future counts as now.
func (s Stamp) lastRequested(modified, now time.Time) Stamp {
	if modified.After(now) {
		s.futureAt = modified
		if s.At.After(modified) && !s.At.After(modified.Add(clockSlack)) {
			s.futureAt = s.At // finer than the clock of the file
		}
		modified = now
	}
	if s.At.Before(modified) || s.At.After(now) || s.At.After(modified.Add(clockSlack)) {
		s.At = modified
	}
	return s
}

// pidNamespace returns the PID namespace of the program that keeps a marker, according to its
// content; "" if it has none.
func (s Stamp) pidNamespace() string {
	var args struct {
		PIDNamespace string `json:"pid_namespace"`
	}
	if len(s.Args) == 0 || json.Unmarshal(s.Args, &args) != nil {
		return ""
	}
	return args.PIDNamespace
}
