package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// EntryVersion is the version of the entry format that this code writes.
const EntryVersion = 1

// entryLimit bounds how much of an entry is read, in bytes.
const entryLimit = 1 << 20

// The suffixes of entries: being tried, and waiting for a person.
const (
	entryPending = ".pending"
	entryManual  = ".failed_manual"
)

var entryPattern = regexp.MustCompile(`^([^.]+)\.([1-9][0-9]{0,3})-([a-z][a-z0-9]{0,15})(\.pending|\.failed_manual)$`)

// EntryName names an entry of the outbox: the delivery of one operation to one target.
type EntryName struct {
	ID ID
	// Place is the position of the target in the job's list, from 1; Kind is its kind.
	Place int
	Kind  string
}

// String returns the name of the entry's file without its suffix.
func (n EntryName) String() string { return n.ID.text + "." + strconv.Itoa(n.Place) + "-" + n.Kind }

func (n EntryName) file(suffix string) string { return path.Join(outboxDir, n.String()+suffix) }

// ParseEntryName parses the name of a file of outbox/; manual is true if the entry waits for a
// person.
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

// OutboxEntry is the content of a file of outbox/. It is durable before the terminal record of its
// operation, and has no effect until that record exists and contains the delivery.
type OutboxEntry struct {
	Version int `json:"version"`
	// Run is the run with which the operation ended; optional steps may have later runs.
	Run       int       `json:"run"`
	CreatedAt time.Time `json:"created_at"`
	// Attempts counts the attempts; LastAt and LastError are of the last failed one.
	Attempts  int        `json:"attempts"`
	LastAt    *time.Time `json:"last_attempt_at,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	// Until is when a delivery that has not succeeded starts to wait for a person; nil is never.
	Until *time.Time `json:"retry_until,omitempty"`
	// Upload is the unfinished multipart upload, nil if there is none.
	Upload *Upload `json:"upload,omitempty"`
	// Artifacts is the progress of a delivery of artifacts, nil for other deliveries or before it
	// begins.
	Artifacts *SentArtifacts `json:"artifacts,omitempty"`
}

// SentArtifacts are the artifacts that the target already has. Artifacts are sent in the order in
// which a walk of their folder finds them.
type SentArtifacts struct {
	// After is the name of the last one sent.
	After string `json:"after"`
	// Files and Bytes count all of them; Stored lists the first ones.
	Files  int64        `json:"files"`
	Bytes  int64        `json:"bytes"`
	Stored []StoredFile `json:"stored,omitempty"`
}

// Upload is an unfinished multipart upload to a bucket. The server keeps the parts, and the next
// attempt continues it.
type Upload struct {
	// Name is the name of the object, ID the server's ID of the upload.
	Name string `json:"name"`
	ID   string `json:"upload_id"`
	// Bytes is the size of the whole, PartBytes the size of each part except the last.
	Bytes     int64 `json:"bytes"`
	PartBytes int64 `json:"part_bytes"`
}

func encodeEntry(name EntryName, e *OutboxEntry) ([]byte, error) {
	e.Version = EntryVersion
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", name, err)
	}
	return append(data, '\n'), nil
}

// decodeEntry decodes an entry. It ignores unknown members: if they matter, a newer version of
// jobdir writes a higher version number.
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

// OutboxFiles is the content of outbox/.
type OutboxFiles struct {
	Pending, Manual []EntryName
	// Requested are the present or former entries that have a pending request.
	Requested []EntryName
	// Others are unknown names.
	Others []string
}

// Outbox are the files of outbox/: an entry for each delivery, and requests for them.
type Outbox struct{ *storage }

// OwnerOutbox is the outbox for the daemon, which alone writes entries and the list of them.
type OwnerOutbox struct {
	*Outbox
	sync *files.Folder // outbox/
	list cachedList
}

// List lists the entries in the order of their names.
func (o *Outbox) List() (OutboxFiles, error) {
	var files OutboxFiles
	entries, err := o.readFolder(outboxDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files, fmt.Errorf("list %s: %w", outboxDir, err)
	}
	for _, entry := range entries {
		name, manual, err := ParseEntryName(entry.Name())
		switch {
		case err != nil || !entry.Type().IsRegular():
			if name, _, ok := ParseDeliveryRequest(entry.Name()); ok {
				files.Requested = append(files.Requested, name)
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

// Dir returns the absolute path of outbox/.
func (o *Outbox) Dir() string { return filepath.Join(o.dir, outboxDir) }

// Has reports whether an entry exists, and whether it waits for a person. An entry that is
// being renamed exists.
func (o *Outbox) Has(name EntryName) (has, manual bool, err error) {
	for range maxEntryReads {
		for _, suffix := range []string{entryPending, entryManual} {
			_, err := o.root.Lstat(name.file(suffix))
			if err == nil {
				return true, suffix == entryManual, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return false, false, fmt.Errorf("stat entry %s: %w", name, err)
			}
		}
	}
	return false, false, nil
}

// maxEntryReads is how often an entry is checked before it counts as missing: a rename may hide it
// from one check.
const maxEntryReads = 3

// Undelivered returns the operations with an entry in the outbox, including failed and unreadable
// ones.
func (o *Outbox) Undelivered() (map[ID]bool, error) {
	files, err := o.List()
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

// Read returns an entry and whether it waits for a person. The error wraps fs.ErrNotExist if
// there is none, is a *CorruptError if it cannot be decoded, and wraps ErrNewerVersion if a newer
// version wrote it.
func (o *Outbox) Read(name EntryName) (e *OutboxEntry, manual bool, err error) {
	for _, suffix := range []string{entryPending, entryManual} {
		data, err := o.readRegular(name.file(suffix), entryLimit)
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

// Write writes a pending entry and replaces an earlier one. It is durable after Sync.
func (o *OwnerOutbox) Write(name EntryName, e *OutboxEntry) error {
	data, err := encodeEntry(name, e)
	if err != nil {
		return err
	}
	return o.files.Replace(name.file(entryPending), data, false)
}

// Rewrite is Write for an existing pending entry. The error wraps fs.ErrNotExist if the
// entry does not exist, even if it was only just removed.
func (o *OwnerOutbox) Rewrite(name EntryName, e *OutboxEntry) error {
	data, err := encodeEntry(name, e)
	if err != nil {
		return err
	}
	return o.files.Rewrite(name.file(entryPending), data)
}

// Sync makes the names of the entries durable.
func (o *OwnerOutbox) Sync() error { return o.sync.Sync() }

// Hold makes an entry wait for a person, who can rename it back to retry it.
func (o *OwnerOutbox) Hold(name EntryName) error {
	if err := o.root.Rename(name.file(entryPending), name.file(entryManual)); err != nil {
		return fmt.Errorf("hold entry %s: %w", name, err)
	}
	return o.sync.Sync()
}

// Revive makes an entry that waits for a person pending again, with new content. It is durable
// when it returns.
func (o *OwnerOutbox) Revive(name EntryName, e *OutboxEntry) error {
	// First the rename, then the new content: with a new file and a removal, a power cut could keep
	// only the removal.
	if err := o.root.Rename(name.file(entryManual), name.file(entryPending)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("revive entry %s: %w", name, err)
	}
	if err := o.Write(name, e); err != nil {
		return err
	}
	return o.sync.Sync()
}

// Remove removes an entry in any state. It does not sync: if the entry comes back, its record
// shows that the delivery is finished.
func (o *OwnerOutbox) Remove(name EntryName) error {
	var errs []error
	for _, suffix := range []string{entryPending, entryManual} {
		if err := o.root.Remove(name.file(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove entry %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Quarantine moves an entry without a delivery to corrupt/ with the reason beside it.
func (o *OwnerOutbox) Quarantine(name EntryName, manual bool, reason string) error {
	suffix := entryPending
	if manual {
		suffix = entryManual
	}
	return o.corrupt.move(name.file(suffix), reason)
}

// outboxFile is a cached list of the entries of outbox/: "+NAME" when an entry is written, "-NAME"
// when it is finished. With it, a start finds an entry that was removed while no daemon ran,
// without reading the history. The first line identifies the folder outbox/. A power cut can only hide
// such a removal.
const outboxFile = "outbox.list"

// Note adds entries to the list before they are written.
func (o *OwnerOutbox) Note(names ...EntryName) { o.list.write(listLines('+', slices.Values(names))) }

// Strike removes an entry from the list after the entry was removed and its record explains
// why.
func (o *OwnerOutbox) Strike(name EntryName) {
	o.list.write(listLines('-', slices.Values([]EntryName{name})))
}

// Listed returns the unfinished entries of the list, and whether the list is of the folder
// that is outbox/ now.
func (o *OwnerOutbox) Listed() (names map[EntryName]bool, here bool, err error) {
	folder, err := o.folderLine()
	if err != nil {
		return nil, false, err
	}
	names, here = make(map[EntryName]bool), true
	err = o.list.scan(func(sign byte, text string) {
		name, known := ParseEntry(text)
		switch {
		case sign == '=':
			here = "="+text+"\n" == folder
		case !known: // torn
		case sign == '+':
			names[name] = true
		case sign == '-':
			delete(names, name)
		}
	})
	return names, here, err
}

// folderLine returns the line that identifies the folder outbox/. With process durability it
// includes the boot of the machine, because a power cut may have lost entries.
func (o *OwnerOutbox) folderLine() (string, error) {
	identity, _, err := files.Identify(unix.AT_FDCWD, o.Dir())
	if err != nil {
		return "", fmt.Errorf("stat %s: %w", outboxDir, err)
	}
	line := "=" + strconv.FormatUint(identity.Inode, 10) + " " + strconv.FormatInt(identity.Born.UnixNano(), 10)
	if o.options.Durability != Power {
		line += " " + machine.This().Boot
	}
	return line + "\n", nil
}

// BeginList rewrites the list from the content of the outbox. No entry may be noted or struck
// during the call.
func (o *OwnerOutbox) BeginList(names map[EntryName]bool) error {
	return o.list.rewrite(func() ([]byte, error) { return o.listOf(names) })
}

// TrimList rewrites the list if it has grown too long.
func (o *OwnerOutbox) TrimList() error {
	o.list.mu.Lock()
	defer o.list.mu.Unlock()
	return o.list.trimLocked(func() ([]byte, error) {
		names, _, err := o.Listed()
		if err != nil {
			return nil, err
		}
		return o.listOf(names)
	})
}

func (o *OwnerOutbox) listOf(names map[EntryName]bool) ([]byte, error) {
	folder, err := o.folderLine()
	return append([]byte(folder), listLines('+', maps.Keys(names))...), err
}

// DeliveryAction is the kind of a request for an entry of the outbox. Its file is beside the entry:
// outbox/ID.1-webhook.retry_requested.
type DeliveryAction string

// The delivery actions.
const (
	RetryDelivery DeliveryAction = "retry" // retry it at once, even if it waits for a person
	DropDelivery  DeliveryAction = "drop"  // give it up
)

// DeliveryActions returns the delivery actions. A drop takes precedence over a retry.
func DeliveryActions() []DeliveryAction { return []DeliveryAction{DropDelivery, RetryDelivery} }

func (n EntryName) requestFile(ask DeliveryAction) string {
	return n.file("." + string(ask) + requestSuffix)
}

// ParseEntry parses the name of an entry in the form of String: ID.1-webhook.
func ParseEntry(text string) (EntryName, bool) {
	name, _, err := ParseEntryName(text + entryPending)
	return name, err == nil
}

// ParseDeliveryRequest parses the name of a request file of outbox/.
func ParseDeliveryRequest(file string) (name EntryName, ask DeliveryAction, ok bool) {
	for _, ask := range DeliveryActions() {
		if head, is := strings.CutSuffix(file, "."+string(ask)+requestSuffix); is {
			name, ok := ParseEntry(head)
			return name, ask, ok
		}
	}
	return name, "", false
}

// Request creates a request for an entry, removes the opposite one, and returns when that
// is durable. args holds the requester and the reason.
func (o *Outbox) Request(name EntryName, ask DeliveryAction, args Args) error {
	line, err := args.JSON()
	if err == nil {
		err = o.files.Replace(name.requestFile(ask), formatStamp(o.options.Now(), line), false)
	}
	if err != nil {
		return fmt.Errorf("request a %s of %s: %w", ask, name, err)
	}
	for _, other := range DeliveryActions() {
		if other == ask {
			continue
		}
		if err := o.root.Remove(name.requestFile(other)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("request a %s of %s: %w", ask, name, err)
		}
	}
	return o.syncFolder(outboxDir)
}

// DeliveryRequest is a pending request for an entry.
type DeliveryRequest struct {
	Action DeliveryAction
	// By is the requester: the name in the file, or else its owner; "" if unknown. Reason is the
	// reason.
	By, Reason string

	file string
	info fs.FileInfo
}

// Requested returns the pending request for an entry; false if there is none.
func (o *OwnerOutbox) Requested(name EntryName) (DeliveryRequest, bool, error) {
	for _, ask := range DeliveryActions() {
		a := DeliveryRequest{Action: ask, file: name.requestFile(ask)}
		var err error
		if a.info, err = o.root.Lstat(a.file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return a, false, fmt.Errorf("stat %s: %w", a.file, err)
		}
		if !a.info.Mode().IsRegular() {
			continue
		}
		stamp, err := o.requestStamp(o.root, a.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was withdrawn
		}
		if err != nil {
			return a, false, err
		}
		a.By = ownerName(o.root, a.file)
		if args, err := ParseArgs(stamp.Args); err == nil { // otherwise the name is enough
			a.By, a.Reason = args.Requester(a.By), args.Reason
		}
		return a, true, nil
	}
	return DeliveryRequest{}, false, nil
}

// DropRequest removes a request whose effect is durable, or that has none. A newer request
// of the same name stays.
func (o *OwnerOutbox) DropRequest(a DeliveryRequest) error {
	if err := removeUnchanged(o.root, a.file, a.info); err != nil {
		return fmt.Errorf("remove the request %s: %w", path.Base(a.file), err)
	}
	return nil
}
