package statefs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// outboxFile is a cached list of the entries of outbox/: "+NAME" when one is written, "-NAME" when it is done with. It lets a start find an entry that
// was removed while no daemon ran, without reading the history. Its first line says which folder the entries are in. It is never synced: what a power cut
// takes of it is the notice of such an entry.
const outboxFile = "outbox.list"

// outboxListLimit is how long the list may grow before it is rewritten, in bytes.
const outboxListLimit = 1 << 20

// outboxList belongs to the one process that holds the lock.
type outboxList struct {
	mu   sync.Mutex // guards what follows
	f    *os.File
	size int64
}

// NoteEntries adds entries to the list of what the outbox holds, before they are written.
func (o *Owner) NoteEntries(names ...EntryName) { o.outbox.write(o, '+', names) }

// StrikeEntry takes an entry off the list, after it was removed and its record says why.
func (o *Owner) StrikeEntry(name EntryName) { o.outbox.write(o, '-', []EntryName{name}) }

// write appends lines. Its errors are dropped: the list is a cache, and the write before or after it reports a disk that is full.
func (l *outboxList) write(o *Owner, sign byte, names []EntryName) {
	var lines []byte
	for _, name := range names {
		lines = append(append(append(lines, sign), name.String()...), '\n')
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		f, err := os.OpenFile(filepath.Join(o.dir, outboxFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE|openNonblock, fileMode)
		if err != nil {
			return
		}
		l.f = f
	}
	n, _ := l.f.Write(lines)
	l.size += int64(n)
}

// ListedEntries returns the entries of the list that are not done with, and whether they were in the folder that is outbox/ now.
func (o *Owner) ListedEntries() (names map[EntryName]bool, here bool, err error) {
	names = make(map[EntryName]bool)
	f, _, err := openRegular(o.root, outboxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return names, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", outboxFile, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	folder, err := o.outboxFolder()
	if err != nil {
		return nil, false, err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, outboxListLimit)
	for here = true; lines.Scan(); {
		line := lines.Bytes()
		line = line[bytes.LastIndexByte(line, 0)+1:] // blocks of zero bytes are what a power cut leaves
		if len(line) == 0 {
			continue
		}
		name, known := ParseEntry(string(line[1:]))
		switch {
		case line[0] == '=':
			here = string(line) == folder
		case !known: // torn
		case line[0] == '+':
			names[name] = true
		case line[0] == '-':
			delete(names, name)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", outboxFile, err)
	}
	return names, here, nil
}

// outboxFolder is the line that says which folder outbox/ is: with process durability also in which boot of the machine, because a power cut may have
// taken entries then.
func (o *Owner) outboxFolder() (string, error) {
	identity, _, err := identifyAt(unix.AT_FDCWD, o.OutboxDir())
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", outboxDir, err)
	}
	line := "=" + strconv.FormatUint(identity.Inode, 10) + " " + strconv.FormatInt(identity.Born.UnixNano(), 10)
	if o.options.Durability != Power {
		line += " " + ThisMachine().Boot
	}
	return line, nil
}

// BeginEntryList writes the list anew: with what is in the outbox. Nobody may note or strike entries meanwhile.
func (o *Owner) BeginEntryList(names map[EntryName]bool) error {
	o.outbox.mu.Lock()
	defer o.outbox.mu.Unlock()
	return o.outbox.rewrite(o, names)
}

// TrimEntryList writes the list anew when it has grown long.
func (o *Owner) TrimEntryList() error {
	o.outbox.mu.Lock()
	defer o.outbox.mu.Unlock()
	if o.outbox.size < outboxListLimit {
		return nil
	}
	names, _, err := o.ListedEntries()
	if err != nil {
		return err
	}
	return o.outbox.rewrite(o, names)
}

func (l *outboxList) rewrite(o *Owner, names map[EntryName]bool) error {
	if err := l.close(); err != nil {
		return fmt.Errorf("rewrite %s: %w", outboxFile, err)
	}
	folder, err := o.outboxFolder()
	if err != nil {
		return err
	}
	data := []byte(folder + "\n")
	for name := range names {
		data = append(append(append(data, '+'), name.String()...), '\n')
	}
	l.size = 0
	return o.files.replaceUnsynced(outboxFile, data)
}

func (l *outboxList) close() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
