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
)

// liveFile is the cached list of live IDs: "+ID" when one is submitted, "-ID" when it ended. It lets a start find a record whose
// marker was removed while no daemon ran, without reading the history. It is never synced: what a power cut takes from it is at
// worst the notice of a marker that was removed by hand at the same moment.
const liveFile = "live.list"

type liveList struct {
	mu sync.Mutex // guards what follows
	f  *os.File
	// owned says that this process has the lock of the storage: nobody else rewrites the list, and whether somebody has removed it is looked at
	// with each sweep and not with each line.
	owned bool
}

func (l *liveList) remove(t *Tree, id ID) { l.write(t, "-"+id.text+"\n") }

func (l *liveList) add(t *Tree, recs ...*Record) {
	var lines strings.Builder
	for _, rec := range recs {
		lines.WriteString("+" + rec.ID.text + "\n")
	}
	l.write(t, lines.String())
}

// write appends lines in one write, so that processes do not tear each other's. Its errors are dropped: the list is a cache,
// and the write before or after it reports a disk that is full.
func (l *liveList) write(t *Tree, lines string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.owned {
		l.reopen(t)
	}
	if l.f == nil {
		f, err := os.OpenFile(filepath.Join(t.dir, liveFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE|openNonblock, fileMode)
		if err != nil {
			return
		}
		l.f = f
	}
	_, _ = l.f.WriteString(lines)
}

// own says whether this process has the lock of the storage.
func (l *liveList) own(owned bool) {
	l.mu.Lock()
	l.owned = owned
	l.mu.Unlock()
}

// reopen lets go of a list that was replaced: a daemon that starts rewrites it while other processes have the old one open. The caller holds mu.
func (l *liveList) reopen(t *Tree) {
	if l.f == nil {
		return
	}
	open, err := l.f.Stat()
	named, nameErr := t.root.Lstat(liveFile)
	if err != nil || nameErr != nil || !os.SameFile(open, named) {
		_ = l.f.Close() // every line was one write
		l.f = nil
	}
}

func (l *liveList) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// readLive returns the IDs of the cached list that did not end.
func (t *Tree) readLive() (map[ID]bool, error) {
	live := make(map[ID]bool)
	err := t.scanLive(func(id ID, begins bool) {
		if begins {
			live[id] = true
		} else {
			delete(live, id)
		}
	})
	return live, err
}

// scanLive calls note for each line of the cached list. What a crash left of a line is passed over, however long it is: a power
// cut can leave blocks of zero bytes.
func (t *Tree) scanLive(note func(id ID, begins bool)) error {
	f, _, err := openRegular(t.root, liveFile)
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

// parseLive reads one line. A line may stand behind the torn beginning of another one; no ID holds a plus sign.
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

// liveListLimit is how long the cached list may grow with operations that ended before it is rewritten.
const liveListLimit = 1 << 20

// trimLive rewrites the cached list when most of it is about operations that ended, and begins a new one where somebody has removed it. Lines
// of this process wait meanwhile; only the daemon's process submits.
func (t *Tree) trimLive() error {
	t.live.mu.Lock()
	defer t.live.mu.Unlock()
	t.live.reopen(t)
	info, err := t.root.Lstat(liveFile)
	if err != nil || info.Size() < liveListLimit {
		return nil // without a list there is nothing to trim
	}
	live, err := t.readLive()
	if err != nil {
		return err
	}
	if err := t.writeLive(live); err != nil {
		return err
	}
	t.live.reopen(t)
	return nil
}

// compactLive rewrites the cached list to what is live now.
func (t *Tree) compactLive(live map[ID]bool) error {
	if err := t.live.close(); err != nil {
		return fmt.Errorf("rewrite the list of live operations: %w", err)
	}
	return t.writeLive(live)
}

func (t *Tree) writeLive(live map[ID]bool) error {
	var data []byte
	for id := range live {
		data = append(append(append(data, '+'), id.text...), '\n')
	}
	return t.files.replaceUnsynced(liveFile, data)
}
