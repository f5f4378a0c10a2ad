package statefs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/statefs/files"
)

// liveFile is the cached list of live IDs: "+ID" once the marker of a submit is durable, "-ID" once
// the operation ended. With it, a start finds a record whose marker was removed while no daemon
// ran, without reading the history. A record whose marker was never created is not listed, so no
// start cancels such an operation. The list is never synced: in the worst case a power cut hides a
// marker that a person removed at the same moment.
const liveFile = "live.list"

// LiveList is the cached list.
type LiveList struct {
	*storage
	mu sync.Mutex // guards the fields below
	f  *os.File
	// owned means that this process holds the lock of the storage, so no other process rewrites the
	// list. A sweep checks whether the file was removed; without the lock, every write does.
	owned bool
}

func (l *LiveList) remove(id ID) { l.write("-" + id.text + "\n") }

// Add appends IDs.
func (l *LiveList) Add(ids ...ID) {
	var lines strings.Builder
	for _, id := range ids {
		lines.WriteString("+" + id.text + "\n")
	}
	l.write(lines.String())
}

// write appends lines with one write, so that lines of several processes do not mix. It ignores
// errors: the list is a cache, and the other writes of the operation report a full disk.
func (l *LiveList) write(lines string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.owned {
		l.reopen()
	}
	if l.f == nil {
		f, err := files.OpenFile(filepath.Join(l.dir, liveFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		if err != nil {
			return
		}
		l.f = f
	}
	_, _ = l.f.WriteString(lines)
}

// setOwned sets whether this process holds the lock of the storage.
func (l *LiveList) setOwned(owned bool) {
	l.mu.Lock()
	l.owned = owned
	l.mu.Unlock()
}

// reopen closes a list file that was replaced: a starting daemon rewrites the list while other
// processes have the old file open. The caller holds mu.
func (l *LiveList) reopen() {
	if l.f == nil {
		return
	}
	open, err := l.f.Stat()
	named, nameErr := l.root.Lstat(liveFile)
	if err != nil || nameErr != nil || !os.SameFile(open, named) {
		_ = l.f.Close() // each line was one write, so nothing is buffered
		l.f = nil
	}
}

func (l *LiveList) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// IDs returns the IDs of the cached list that did not end.
func (l *LiveList) IDs() (map[ID]bool, error) {
	live := make(map[ID]bool)
	err := l.scan(func(id ID, begins bool) {
		if begins {
			live[id] = true
		} else {
			delete(live, id)
		}
	})
	return live, err
}

// scan calls note for each line of the cached list. It skips damaged lines of any length: a
// power cut can leave blocks of zero bytes.
func (l *LiveList) scan(note func(id ID, begins bool)) error {
	f, _, err := l.openRegular(liveFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the list of live operations: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadSlice('\n')
		if id, begins, ok := parseLive(line); ok {
			note(id, begins)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read the list of live operations: %w", err)
		}
	}
}

// parseLive parses one line. The line may follow an incomplete one without a newline; no ID
// contains a plus sign.
func parseLive(line []byte) (id ID, begins, ok bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	line = line[bytes.LastIndexByte(line, 0)+1:]
	line = line[max(0, bytes.LastIndexByte(line, '+')):]
	if len(line) == 0 || line[0] != '+' && line[0] != '-' {
		return ID{}, false, false
	}
	id, err := ParseID(string(line[1:]))
	return id, line[0] == '+', err == nil
}

// liveListLimit is the size in bytes from which the cached list is rewritten without the ended
// operations.
const liveListLimit = 1 << 20

// Trim rewrites the cached list once it exceeds liveListLimit. If the file was removed, it
// closes the old one and the next write creates a new one. Other writes of this process wait; only
// the daemon's process submits.
func (l *LiveList) Trim() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopen()
	info, err := l.root.Lstat(liveFile)
	if err != nil || info.Size() < liveListLimit {
		return nil // without a list there is nothing to trim
	}
	live, err := l.IDs()
	if err != nil {
		return err
	}
	if err := l.rewrite(live); err != nil {
		return err
	}
	l.reopen()
	return nil
}

// Set rewrites the cached list to the operations that are live now.
func (l *LiveList) Set(live map[ID]bool) error {
	if err := l.close(); err != nil {
		return fmt.Errorf("rewrite the list of live operations: %w", err)
	}
	return l.rewrite(live)
}

func (l *LiveList) rewrite(live map[ID]bool) error {
	var data []byte
	for id := range live {
		data = append(append(append(data, '+'), id.text...), '\n')
	}
	return l.files.ReplaceUnsynced(liveFile, data)
}

// Listed returns every ID in the cached list, including ended ones, and false if there is no
// list.
func (l *LiveList) Listed() (ids map[ID]bool, there bool, err error) {
	if _, err := l.root.Lstat(liveFile); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	ids = make(map[ID]bool)
	err = l.scan(func(id ID, _ bool) { ids[id] = true })
	return ids, true, err
}
