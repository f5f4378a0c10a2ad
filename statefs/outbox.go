package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EntryVersion is the version of the format of entries that this code writes.
const EntryVersion = 1

// entryLimit bounds what is read of an entry.
const entryLimit = 1 << 20

// The suffixes of entries: one that is tried, and one that waits for a person.
const (
	entryPending = ".pending"
	entryManual  = ".failed_manual"
)

var entryPattern = regexp.MustCompile(`^([^.]+)\.([1-9][0-9]{0,3})-([a-z][a-z0-9]{0,15})(\.pending|\.failed_manual)$`)

// EntryName names an entry of the outbox: what is to be delivered of an operation to one target.
type EntryName struct {
	ID ID
	// Place is the place of the target in the job's list, from 1, and Kind what it is.
	Place int
	Kind  string
}

// String is the name of the entry's file without its suffix.
func (n EntryName) String() string { return n.ID.text + "." + strconv.Itoa(n.Place) + "-" + n.Kind }

func (n EntryName) file(suffix string) string { return path.Join(outboxDir, n.String()+suffix) }

// ParseEntryName reads the name of a file of outbox/; manual is one that waits for a person.
func ParseEntryName(file string) (name EntryName, manual bool, err error) {
	m := entryPattern.FindStringSubmatch(file)
	if m == nil {
		return name, false, fmt.Errorf("%q is not the name of an entry of the outbox", shorten(file))
	}
	id, err := ParseID(m[1])
	if err != nil {
		return name, false, err
	}
	place, err := strconv.Atoi(m[2])
	return EntryName{ID: id, Place: place, Kind: m[3]}, m[4] == entryManual, err
}

// OutboxEntry is the content of a file of outbox/. It is durable before the terminal record that it belongs to, and means nothing until
// there is that record and it names the delivery.
type OutboxEntry struct {
	Version int `json:"version"`
	// Run is the one with which the operation ended; optional steps may have had later ones since.
	Run       int       `json:"run"`
	CreatedAt time.Time `json:"created_at"`
	// Attempts counts how often it was tried; LastAt and LastError are of the last one that failed.
	Attempts  int        `json:"attempts"`
	LastAt    *time.Time `json:"last_attempt_at,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	// Until is when it is given to a person if it was not delivered; nil is never.
	Until *time.Time `json:"retry_until,omitempty"`
	// Upload is what is being sent in parts, nil when nothing is.
	Upload *Upload `json:"upload,omitempty"`
	// Artifacts is how far the delivery of artifacts is, nil when it is of none or has not begun.
	Artifacts *SentArtifacts `json:"artifacts,omitempty"`
}

// SentArtifacts are the artifacts that a target has already; they are sent in the order in which a walk over their folder finds them.
type SentArtifacts struct {
	// After is the name of the last one.
	After string `json:"after"`
	// Files and Bytes count all of them, Stored says where the first are.
	Files  int64        `json:"files"`
	Bytes  int64        `json:"bytes"`
	Stored []StoredFile `json:"stored,omitempty"`
}

// Upload is a file that is being sent to a bucket in parts, which the server keeps until all are there. The next try goes on with it.
type Upload struct {
	// Name is that of the object, and ID what the server calls the upload.
	Name string `json:"name"`
	ID   string `json:"upload_id"`
	// Bytes is the size of the whole, PartBytes that of each part but the last.
	Bytes     int64 `json:"bytes"`
	PartBytes int64 `json:"part_bytes"`
}

func encodeEntry(e *OutboxEntry) ([]byte, error) {
	data, err := json.Marshal(e)
	return append(data, '\n'), err
}

// decodeEntry reads an entry. Members that it does not know are left out: a newer version writes a higher number when they matter.
func decodeEntry(file string, data []byte) (*OutboxEntry, error) {
	e := new(OutboxEntry)
	err := json.Unmarshal(data, e)
	switch {
	case versionOf(data) > EntryVersion:
		return nil, fmt.Errorf("%s: %w (format %d, this one knows %d)", file, ErrNewerVersion, versionOf(data), EntryVersion)
	case err != nil:
		return nil, &CorruptError{file, err.Error()}
	case e.Version < 1:
		return nil, &CorruptError{file, "it has no version"}
	case e.Run < 0 || e.Attempts < 0:
		return nil, &CorruptError{file, "it has a negative count"}
	case bytes.ContainsRune([]byte(e.LastError), 0):
		return nil, &CorruptError{file, "its last error has a NUL"}
	}
	return e, nil
}

// OutboxFiles is what outbox/ holds.
type OutboxFiles struct {
	Pending, Manual []EntryName
	// Asked are entries, or what was one, of which somebody asks something.
	Asked []EntryName
	// Others are names that mean nothing.
	Others []string
}

// Outbox lists the entries, in the order of their names.
func (t *Tree) Outbox() (OutboxFiles, error) {
	var files OutboxFiles
	entries, err := fs.ReadDir(t.root.FS(), outboxDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files, fmt.Errorf("list %s: %w", outboxDir, err)
	}
	for _, entry := range entries {
		name, manual, err := ParseEntryName(entry.Name())
		switch {
		case err != nil || !entry.Type().IsRegular():
			if name, _, ok := ParseDeliveryAsk(entry.Name()); ok {
				files.Asked = append(files.Asked, name)
			} else if !strings.HasPrefix(entry.Name(), ".") {
				files.Others = append(files.Others, entry.Name())
			}
		case manual:
			files.Manual = append(files.Manual, name)
		default:
			files.Pending = append(files.Pending, name)
		}
	}
	return files, nil
}

// OutboxDir returns the absolute path of outbox/.
func (t *Tree) OutboxDir() string { return filepath.Join(t.dir, outboxDir) }

// HasEntry says whether there is an entry, and whether it waits for a person. One that is being renamed is there.
func (t *Tree) HasEntry(name EntryName) (has, manual bool, err error) {
	for range entryLooks {
		for _, suffix := range []string{entryPending, entryManual} {
			_, err := t.root.Lstat(name.file(suffix))
			if err == nil {
				return true, suffix == entryManual, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return false, false, fmt.Errorf("look at entry %s: %w", name, err)
			}
		}
	}
	return false, false, nil
}

// entryLooks is how often an entry is looked for before it is taken for gone: a look may fall between its two names.
const entryLooks = 3

// Undelivered returns the operations that have something in the outbox, also what could not be delivered and what cannot be read.
func (t *Tree) Undelivered() (map[ID]bool, error) {
	files, err := t.Outbox()
	if err != nil {
		return nil, err
	}
	held := make(map[ID]bool)
	for _, name := range slices.Concat(files.Pending, files.Manual) {
		held[name.ID] = true
	}
	for _, other := range files.Others {
		head, _, _ := strings.Cut(other, ".")
		if id, err := ParseID(head); err == nil {
			held[id] = true
		}
	}
	return held, nil
}

// ReadEntry returns an entry and whether it waits for a person. The error wraps fs.ErrNotExist when there is none, is a *CorruptError
// when it cannot be understood, and wraps ErrNewerVersion when it must be left alone.
func (t *Tree) ReadEntry(name EntryName) (e *OutboxEntry, manual bool, err error) {
	for _, suffix := range []string{entryPending, entryManual} {
		data, err := t.readRegular(t.root, name.file(suffix), entryLimit)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		e, err = decodeEntry(name.file(suffix), data)
		return e, suffix == entryManual, err
	}
	return nil, false, fmt.Errorf("entry %s: %w", name, fs.ErrNotExist)
}

// WriteEntry puts an entry that is to be tried in the place of what there was. It is durable after SyncOutbox.
func (o *Owner) WriteEntry(name EntryName, e *OutboxEntry) error {
	e.Version = EntryVersion
	data, err := encodeEntry(e)
	if err != nil {
		return fmt.Errorf("entry %s: %w", name, err)
	}
	return o.files.replace(name.file(entryPending), data, false)
}

// RewriteEntry is WriteEntry for an entry that is there and to be tried; the error wraps fs.ErrNotExist when it is not, however lately that was.
func (o *Owner) RewriteEntry(name EntryName, e *OutboxEntry) error {
	e.Version = EntryVersion
	data, err := encodeEntry(e)
	if err != nil {
		return fmt.Errorf("entry %s: %w", name, err)
	}
	return o.files.rewrite(name.file(entryPending), data)
}

// SyncOutbox makes durable which entries there are.
func (o *Owner) SyncOutbox() error { return o.outboxSync.sync() }

// HoldEntry has an entry wait for a person, who renames it back to have it tried again.
func (o *Owner) HoldEntry(name EntryName) error {
	if err := o.root.Rename(name.file(entryPending), name.file(entryManual)); err != nil {
		return fmt.Errorf("hold entry %s: %w", name, err)
	}
	return o.outboxSync.sync()
}

// ReviveEntry has an entry that waits for a person be tried again, with new content. It is durable when it returns.
func (o *Owner) ReviveEntry(name EntryName, e *OutboxEntry) error {
	// Renamed, and then replaced: of a new file and the removal of the old one a power cut could leave the removal alone.
	if err := o.root.Rename(name.file(entryManual), name.file(entryPending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("revive entry %s: %w", name, err)
	}
	if err := o.WriteEntry(name, e); err != nil {
		return err
	}
	return o.outboxSync.sync()
}

// RemoveEntry removes an entry, in whatever state it is. It is not synced: one that comes back meets a record which says that it is
// done with.
func (o *Owner) RemoveEntry(name EntryName) error {
	var errs []error
	for _, suffix := range []string{entryPending, entryManual} {
		if err := o.root.Remove(name.file(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove entry %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// QuarantineEntry moves an entry that belongs to nothing to corrupt/ with the reason beside it.
func (o *Owner) QuarantineEntry(name EntryName, manual bool, reason string) error {
	suffix := entryPending
	if manual {
		suffix = entryManual
	}
	return o.quarantine(name.file(suffix), reason)
}
