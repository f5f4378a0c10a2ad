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
	"path/filepath"
	"slices"
)

// ErrNotLive is wrapped when an operation is not found or already finished.
var ErrNotLive = errors.New("not found or already finished")

// BlockedError says that something that is no file has the name that a request needs.
type BlockedError struct{ File string }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s is no regular file: remove it, or ask again when the daemon has moved it to %s/", e.File, corruptDir)
}

// Request asks for something: it puts the request file into jobs/, removes its opposite, and returns when that is durable. What
// exists counts, so asking twice is asking once. The file gets a new inode each time, so the daemon sees it as new. args is nil or
// one JSON object. The error wraps ErrNotLive when the operation has no marker, and is a *BlockedError when a folder is in the way.
func (t *Tree) Request(_ context.Context, id ID, ask Ask, args json.RawMessage) error {
	if !slices.Contains(asks, ask) {
		return fmt.Errorf("request %q of %s: there is no such request", shorten(string(ask)), id)
	}
	args, err := oneLine(args)
	if err != nil {
		return fmt.Errorf("request %s of %s: %w", ask, id, err)
	}
	live, err := t.hasMarker(id)
	if err != nil {
		return fmt.Errorf("request %s of %s: %w", ask, id, err)
	}
	if !live {
		return fmt.Errorf("operation '%s' %w", id, ErrNotLive)
	}
	err = t.putRequest(id, ask, args)
	if err == nil {
		err = t.inPlace()
	}
	if err != nil {
		return fmt.Errorf("request %s of %s: %w", ask, id, t.displacedBy(err))
	}
	return t.jobsSync.sync()
}

// oneLine returns a JSON object without line breaks, because it stands on the second line of a request.
func oneLine(args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, args); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if line.Bytes()[0] != '{' {
		return nil, errors.New("arguments: they are no JSON object")
	}
	return line.Bytes(), nil
}

func (t *Tree) putRequest(id ID, ask Ask, args json.RawMessage) error {
	// The content needs no sync of its own unless it carries arguments: an empty request file counts by its modification time.
	write := t.files.replaceUnsynced
	if len(args) > 0 {
		write = func(name string, data []byte) error { return t.files.replace(name, data, false) }
	}
	before, err := t.opposing(id, ask)
	if err != nil {
		return err
	}
	name := RequestName(id, ask)
	err = write(path.Join(jobsDir, name), formatStamp(t.options.Now(), args))
	if Scarce(err) && len(args) == 0 {
		err = t.askInNoRoom(name)
	}
	if err != nil {
		if regular, exists, statErr := t.stat(name); statErr == nil && exists && !regular {
			return &BlockedError{path.Join(jobsDir, name)}
		}
		return err
	}
	if before == nil {
		return nil
	}
	return t.takeBack(RequestName(id, opposite[ask]), before)
}

// opposing returns the request that a new one takes the place of, nil when there is none. Only a regular file is a request; a folder
// with that name is left as it is.
func (t *Tree) opposing(id ID, ask Ask) (fs.FileInfo, error) {
	other, ok := opposite[ask]
	if !ok {
		return nil, nil
	}
	info, err := t.jobs.Lstat(RequestName(id, other))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	return info, err
}

// takeBack removes a request that was there before its opposite was written. One that was asked since is the later one: whoever asked
// for it may have seen the effect of ours, and been told that it stands.
func (t *Tree) takeBack(name string, before fs.FileInfo) error {
	now, err := t.jobs.Lstat(name)
	if err == nil && os.SameFile(before, now) && now.ModTime().Equal(before.ModTime()) {
		err = t.jobs.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *Tree) hasMarker(id ID) (bool, error) {
	states, err := t.markers(id)
	return len(states) > 0, err
}

// State returns the live state of an operation as its marker says it. The error wraps ErrNotLive when there is no marker, for
// which it looks several times: a marker that somebody keeps renaming is not taken for missing.
func (t *Tree) State(id ID) (State, error) {
	states, err := t.markers(id)
	if err != nil {
		return "", err
	}
	if len(states) == 0 {
		return "", fmt.Errorf("operation '%s' %w", id, ErrNotLive)
	}
	return states[0], nil
}

// Taken is a request that the daemon carries out: it stands in taken/ until its effect is durable, and is carried out again
// after a crash.
type Taken struct {
	ID  ID
	Ask Ask
	At  Stamp // as Stamp.Compare orders them
	// By is who made the file, by the name of its owner, "" when that is not known.
	By   string
	file string
}

// Take moves a request into taken/. It reports false when the request is gone, which means that somebody took it back.
func (o *Owner) Take(id ID, ask Ask) (Taken, bool, error) {
	name := RequestName(id, ask)
	stamp, err := o.requestStamp(o.jobs, name)
	by := ""
	if HasParticulars(ask) {
		by = ownerName(o.jobs, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Taken{}, false, nil
	}
	if err != nil {
		return Taken{}, false, err
	}
	err = os.Rename(filepath.Join(o.JobsDir(), name), filepath.Join(o.dir, takenDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := o.root.Lstat(takenDir); err != nil {
			return Taken{}, false, fmt.Errorf("take %s: %w", name, &FolderGoneError{filepath.Join(o.dir, takenDir)})
		}
		return Taken{}, false, nil
	}
	if err != nil {
		return Taken{}, false, fmt.Errorf("take %s: %w", name, err)
	}
	o.changed.Add(1)
	// A touch between the look and the rename asks again, and what is in taken/ now is all that is left of it.
	if info, err := o.root.Lstat(path.Join(takenDir, name)); err == nil {
		stamp = stamp.asked(info.ModTime(), o.options.Now())
	}
	return Taken{ID: id, Ask: ask, At: stamp, By: by, file: name}, true, o.takeLink(name)
}

// HasParticulars reports whether a request may say which step it means, who asks and why ([Args]).
func HasParticulars(ask Ask) bool {
	return ask == Retry || ask == Skip || ask == Set || ask == Approve || ask == Reject
}

// takeLink removes a request that is a second name of the one in taken/: renaming one to the other does nothing (see askInNoRoom).
func (o *Owner) takeLink(name string) error {
	left, err := o.jobs.Lstat(name)
	if err != nil {
		return nil //nolint:nilerr // it is gone, as it should be
	}
	taken, err := o.root.Lstat(path.Join(takenDir, name))
	if err != nil || !os.SameFile(left, taken) {
		return nil //nolint:nilerr // somebody has asked again
	}
	if err := o.jobs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take %s: %w", name, err)
	}
	return nil
}

// requestStamp reads the content of a request. One that may not be read, because another user made it under a strict umask, counts
// by its modification time: its name says enough.
func (t *Tree) requestStamp(root *os.Root, file string) (Stamp, error) {
	info, err := root.Lstat(file)
	if err != nil {
		return Stamp{}, fmt.Errorf("read %s: %w", file, err)
	}
	stamp, err := t.stampIn(root, file)
	if errors.Is(err, fs.ErrPermission) && info.Mode().IsRegular() {
		stamp, err = Stamp{At: info.ModTime()}, nil
	}
	return stamp.asked(info.ModTime(), t.options.Now()), err
}

// Drop removes a taken request: its effect is durable, or it has none.
func (o *Owner) Drop(taken Taken) error {
	if taken.file == "" {
		return nil // a marker that was removed asks without a file
	}
	// By its path, which needs no descriptor: the effect is there, and carrying it out again would be wrong.
	err := os.Remove(filepath.Join(o.dir, takenDir, taken.file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop the request %s: %w", taken.file, err)
	}
	o.changed.Add(1)
	return nil
}

// Untake puts every request that an earlier daemon had taken back into jobs/, unless the same or its opposite has been asked
// since, so that carrying out after a crash is carrying out. It returns how many it put back.
func (o *Owner) Untake() (int, error) {
	entries, err := fs.ReadDir(o.root.FS(), takenDir)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", takenDir, err)
	}
	var done []string
	back := 0
	for _, entry := range entries {
		if isBatch(entry) {
			continue
		}
		if _, ok := SubmissionName(entry.Name()); ok {
			continue
		}
		name, ok := ParseName(entry.Name())
		if !ok || name.Ask == "" || !entry.Type().IsRegular() {
			if err := o.quarantine(path.Join(takenDir, entry.Name()), "not a request"); err != nil {
				return back, err
			}
			continue
		}
		linked, err := o.untake(entry.Name(), name)
		if err != nil {
			return back, fmt.Errorf("put back the request %s: %w", entry.Name(), err)
		}
		if linked {
			back++
		}
		done = append(done, entry.Name())
	}
	// The names in jobs/ are durable before those in taken/ go: in between a request has both, never neither.
	if err := o.jobsSync.sync(); err != nil {
		return back, err
	}
	for _, name := range done {
		if err := o.root.Remove(path.Join(takenDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return back, fmt.Errorf("put back the request %s: %w", name, err)
		}
	}
	return back, nil
}

// untake links one taken request into jobs/. It reports false when a newer request takes its place.
func (o *Owner) untake(file string, name Name) (bool, error) {
	if other, ok := opposite[name.Ask]; ok {
		newer, err := o.requestStamp(o.jobs, RequestName(name.ID, other))
		if err == nil {
			taken, err := o.requestStamp(o.root, path.Join(takenDir, file))
			if err == nil && newer.Compare(taken) >= 0 {
				return false, nil
			}
		}
		// One that is not there, or cannot be read, replaces nothing.
	}
	err := o.root.Link(path.Join(takenDir, file), path.Join(jobsDir, file))
	if errors.Is(err, fs.ErrPermission) {
		// Linux lets nobody link a file of another user that he may not write (fs.protected_hardlinks). A rename it allows, and the
		// worst that it can replace is the same request.
		err = o.root.Rename(path.Join(takenDir, file), path.Join(jobsDir, file))
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}
