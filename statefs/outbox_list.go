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

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// outboxFile is a cached list of the entries of outbox/: "+NAME" when an entry is written, "-NAME"
// when it is finished. With it, a start finds an entry that was removed while no daemon ran,
// without reading the history. The first line identifies the folder outbox/. The list is never
// synced: a power cut can only hide such a removal.
const outboxFile = "outbox.list"

// outboxListLimit is the size in bytes from which the list is rewritten.
const outboxListLimit = 1 << 20

// Note adds entries to the list before they are written.
func (o *OwnerOutbox) Note(names ...EntryName) { o.writeList('+', names) }

// Strike removes an entry from the list after the entry was removed and its record explains
// why.
func (o *OwnerOutbox) Strike(name EntryName) { o.writeList('-', []EntryName{name}) }

// write appends lines. It ignores errors: the list is a cache, and the other writes of the
// operation report a full disk.
func (o *OwnerOutbox) writeList(sign byte, names []EntryName) {
	var lines []byte
	for _, name := range names {
		lines = append(append(append(lines, sign), name.String()...), '\n')
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.f == nil {
		f, err := files.OpenFile(filepath.Join(o.dir, outboxFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		if err != nil {
			return
		}
		o.f = f
	}
	n, _ := o.f.Write(lines)
	o.size += int64(n)
}

// Listed returns the unfinished entries of the list, and whether the list is of the folder
// that is outbox/ now.
func (o *OwnerOutbox) Listed() (names map[EntryName]bool, here bool, err error) {
	names = make(map[EntryName]bool)
	f, _, err := o.openRegular(outboxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return names, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", outboxFile, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	folder, err := o.folderLine()
	if err != nil {
		return nil, false, err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, outboxListLimit)
	for here = true; lines.Scan(); {
		line := lines.Bytes()
		line = line[bytes.LastIndexByte(line, 0)+1:] // a power cut can leave blocks of zero bytes
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

// folderLine returns the line that identifies the folder outbox/. With process durability it
// includes the boot of the machine, because a power cut may have lost entries.
func (o *OwnerOutbox) folderLine() (string, error) {
	identity, _, err := files.Identify(unix.AT_FDCWD, o.Dir())
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", outboxDir, err)
	}
	line := "=" + strconv.FormatUint(identity.Inode, 10) + " " + strconv.FormatInt(identity.Born.UnixNano(), 10)
	if o.options.Durability != Power {
		line += " " + machine.This().Boot
	}
	return line, nil
}

// BeginList rewrites the list from the content of the outbox. No entry may be noted or struck
// during the call.
func (o *OwnerOutbox) BeginList(names map[EntryName]bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rewriteList(names)
}

// TrimList rewrites the list if it has grown too long.
func (o *OwnerOutbox) TrimList() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size < outboxListLimit {
		return nil
	}
	names, _, err := o.Listed()
	if err != nil {
		return err
	}
	return o.rewriteList(names)
}

func (o *OwnerOutbox) rewriteList(names map[EntryName]bool) error {
	if err := o.closeList(); err != nil {
		return fmt.Errorf("rewrite %s: %w", outboxFile, err)
	}
	folder, err := o.folderLine()
	if err != nil {
		return err
	}
	data := []byte(folder + "\n")
	for name := range names {
		data = append(append(append(data, '+'), name.String()...), '\n')
	}
	o.size = 0
	return o.files.ReplaceUnsynced(outboxFile, data)
}

func (o *OwnerOutbox) closeList() error {
	if o.f == nil {
		return nil
	}
	err := o.f.Close()
	o.f = nil
	return err
}
