package statefs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs/files"
)

// cachedList is a list of names in a file that is only appended to: "+NAME" when one begins, "-NAME" when it ended. It
// is never synced, and a start without it only notices less.
type cachedList struct {
	*storage
	name string
	mu   sync.Mutex // guards the fields below
	f    *os.File
	// owned means that no other process rewrites the list. Without it, every write checks whether the file was replaced.
	owned bool
}

// listLimit is the size in bytes from which a cached list is rewritten without what has ended.
const listLimit = 1 << 20

// listLines returns one line for each name.
func listLines[N fmt.Stringer](sign byte, names iter.Seq[N]) (lines []byte) {
	for name := range names {
		lines = append(append(append(lines, sign), name.String()...), '\n')
	}
	return lines
}

// write appends lines with one write, so that lines of several processes do not mix. It ignores
// errors: the list is a cache, and the other writes of the operation report a full disk.
func (l *cachedList) write(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.owned {
		l.reopen()
	}
	if l.f == nil {
		f, err := files.OpenFile(filepath.Join(l.dir, l.name), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		if err != nil {
			return
		}
		l.f = f
	}
	_, _ = l.f.Write(lines)
}

// setOwned sets whether this process holds the lock of the storage.
func (l *cachedList) setOwned(owned bool) {
	l.mu.Lock()
	l.owned = owned
	l.mu.Unlock()
}

// reopen closes a list file that was replaced: a starting daemon rewrites the list while other
// processes have the old file open. The caller holds mu.
func (l *cachedList) reopen() {
	if l.f != nil && !files.IsNamed(l.f, filepath.Join(l.dir, l.name)) {
		_ = l.closeLocked() // each line was one write, so nothing is buffered
	}
}

func (l *cachedList) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closeLocked()
}

func (l *cachedList) closeLocked() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// scan calls note for each line, with its sign. It skips damaged lines of any length: a power cut can leave blocks of
// zero bytes, and a line may follow an incomplete one without a newline; no name contains a plus sign.
func (l *cachedList) scan(note func(sign byte, name string)) error {
	f, _, err := l.openRegular(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", l.name, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadSlice('\n')
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = line[bytes.LastIndexByte(line, 0)+1:]
		line = line[max(0, bytes.LastIndexByte(line, '+')):]
		if len(line) > 0 {
			note(line[0], string(line[1:]))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read %s: %w", l.name, err)
		}
	}
}

// rewrite replaces the list. Other writes of this process wait.
func (l *cachedList) rewrite(lines func() ([]byte, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rewriteLocked(lines)
}

func (l *cachedList) rewriteLocked(lines func() ([]byte, error)) error {
	data, err := lines()
	if err != nil {
		return err
	}
	if err := l.closeLocked(); err != nil {
		return fmt.Errorf("rewrite %s: %w", l.name, err)
	}
	return l.files.ReplaceUnsynced(l.name, data)
}

// trimLocked rewrites the list once it exceeds listLimit; without a file there is nothing to trim.
func (l *cachedList) trimLocked(lines func() ([]byte, error)) error {
	info, err := l.root.Lstat(l.name)
	if err != nil || info.Size() < listLimit {
		return nil //nolint:nilerr // without a list there is nothing to trim
	}
	return l.rewriteLocked(lines)
}

// liveFile is the cached list of live IDs: "+ID" once the marker of a submit is durable, "-ID" once
// the operation ended. With it, a start finds a record whose marker was removed while no daemon
// ran, without reading the history. A record whose marker was never created is not listed, so no
// start cancels such an operation. In the worst case a power cut hides a marker that a person
// removed at the same moment.
const liveFile = "live.list"

// LiveList is the cached list of live IDs.
type LiveList struct{ cachedList }

func (l *LiveList) remove(id ID) { l.write(listLines('-', slices.Values([]ID{id}))) }

// Add appends IDs.
func (l *LiveList) Add(ids ...ID) { l.write(listLines('+', slices.Values(ids))) }

// IDs returns the IDs of the cached list that did not end.
func (l *LiveList) IDs() (map[ID]bool, error) {
	live := make(map[ID]bool)
	err := l.scanIDs(func(id ID, begins bool) {
		if begins {
			live[id] = true
		} else {
			delete(live, id)
		}
	})
	return live, err
}

// scanIDs calls note for each line with an ID.
func (l *LiveList) scanIDs(note func(id ID, begins bool)) error {
	return l.scan(func(sign byte, name string) {
		if id, err := ParseID(name); err == nil && (sign == '+' || sign == '-') {
			note(id, sign == '+')
		}
	})
}

// Trim rewrites the cached list once it exceeds listLimit. If the file was removed, it
// closes the old one and the next write creates a new one.
func (l *LiveList) Trim() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopen()
	return l.trimLocked(func() ([]byte, error) {
		live, err := l.IDs()
		return listLines('+', maps.Keys(live)), err
	})
}

// Set rewrites the cached list to the operations that are live now.
func (l *LiveList) Set(live map[ID]bool) error {
	return l.rewrite(func() ([]byte, error) { return listLines('+', maps.Keys(live)), nil })
}

// Listed returns every ID in the cached list, including ended ones, and false if there is no
// list.
func (l *LiveList) Listed() (ids map[ID]bool, there bool, err error) {
	if _, err := l.root.Lstat(liveFile); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	ids = make(map[ID]bool)
	err = l.scanIDs(func(id ID, _ bool) { ids[id] = true })
	return ids, true, err
}
