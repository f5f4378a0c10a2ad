package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jobdir/jobdir/statefs/files"
)

// DefaultLane is the lane of operations whose job names none. It exists without configuration and is then unlimited.
const DefaultLane = "default"

// AllLanes means every lane; no lane can have this name.
const AllLanes = "all"

// ValidLane reports whether a lane can have this name; AllLanes is not valid.
func ValidLane(name string) bool { return isEndpoint(name) && name != AllLanes }

// LaneControl is the suffix of a file of lanes/: what it controls.
type LaneControl string

// The values of LaneControl.
const (
	// LanePaused: nothing starts in the lane.
	LanePaused LaneControl = "paused"
	// LaneClosed: nothing is submitted to the lane.
	LaneClosed LaneControl = "closed"
	// LaneCapacity: this many operations may run in the lane, whatever the configuration says.
	LaneCapacity LaneControl = "capacity"
)

var laneControls = []LaneControl{LanePaused, LaneClosed, LaneCapacity}

// LaneFile names a file of lanes/. Its lane is AllLanes for a control of every lane.
type LaneFile struct {
	Lane    string
	Control LaneControl
}

// String is the name of the file, such as cookie.paused.
func (f LaneFile) String() string { return f.Lane + "." + string(f.Control) }

func (f LaneFile) path() string { return path.Join(lanesDir, f.String()) }

// ParseLaneFile parses the name of a file of lanes/; it returns false if the file controls nothing.
func ParseLaneFile(name string) (LaneFile, bool) {
	lane, control, _ := strings.Cut(name, ".")
	f := LaneFile{lane, LaneControl(control)}
	switch {
	case !slices.Contains(laneControls, f.Control):
		return LaneFile{}, false
	case lane == AllLanes:
		return f, true
	}
	return f, ValidLane(lane)
}

// StrayLaneFile reports whether a name in lanes/ looks as if it controlled a lane but does not.
func StrayLaneFile(name string) bool {
	_, ok := ParseLaneFile(name)
	return !ok && !strings.HasPrefix(name, ".") && !isLaneTimes(name)
}

// LaneHold is the content of a file that pauses or closes a lane. The zero value, which `touch`
// creates, applies until the file is removed.
type LaneHold struct {
	// Until is when the hold ends automatically; nil: never.
	Until *time.Time `json:"until,omitempty"`
	// Reason is for people; it is shown wherever the hold has an effect.
	Reason string `json:"reason,omitempty"`
	// By is who created the hold; HeldByBreaker is the daemon itself.
	By string `json:"by,omitempty"`
	// Trial is the operation that the breaker starts to test whether the lane works again; the zero
	// ID is none.
	Trial ID `json:"trial,omitzero"`
}

// HeldByBreaker is LaneHold.By of a pause that the daemon made after too many failures.
const HeldByBreaker = "breaker"

// LaneValue is the content of a file of lanes/.
type LaneValue struct {
	// Hold is the value of LanePaused and LaneClosed, Capacity that of LaneCapacity; -1 is
	// unlimited.
	Hold     LaneHold
	Capacity int
	// Complete is false if the text looks as if a program is still writing it.
	Complete bool

	info fs.FileInfo
}

// Regular reports whether the value was read from a regular file, whatever its content.
func (v LaneValue) Regular() bool { return v.info != nil && v.info.Mode().IsRegular() }

// Same reports whether two values were read from the same, unchanged file; false if either was not
// read.
func (v LaneValue) Same(other LaneValue) bool {
	return v.info != nil && other.info != nil && sameContent(v.info, other.info)
}

// LaneFileError reports that a file of lanes/ has invalid content.
type LaneFileError struct {
	File   LaneFile
	Reason string
}

func (e *LaneFileError) Error() string { return fmt.Sprintf("%s/%s: %s", lanesDir, e.File, e.Reason) }

const (
	// MaxLaneCapacity is the highest capacity that can be set.
	MaxLaneCapacity = 1_000_000
	unlimitedText   = "unlimited"
	laneFileLimit   = 16 << 10
	// MaxLaneReason is the maximum length of a reason, in bytes; the rest is cut off.
	MaxLaneReason = 1000
)

// ParseLaneCapacity parses a capacity: a whole number from 0, or "unlimited", which is -1. The
// error is for people.
func ParseLaneCapacity(text string) (int, error) {
	if text == unlimitedText {
		return -1, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > MaxLaneCapacity {
		return 0, fmt.Errorf("capacity %q is neither a whole number from 0 to %d nor %q", shorten(text),
			MaxLaneCapacity, unlimitedText)
	}
	return int(n), nil
}

// FormatLaneCapacity is the inverse of ParseLaneCapacity.
func FormatLaneCapacity(n int) string {
	if n < 0 {
		return unlimitedText
	}
	return strconv.Itoa(n)
}

// parseHold parses the JSON object of a file that pauses or closes; other text, such as `echo`
// writes, is the reason.
func parseHold(data []byte) (hold LaneHold, err error) {
	if len(data) == 0 {
		return LaneHold{}, nil
	}
	if data[0] != '{' {
		return LaneHold{Reason: printableReason(string(data))}, nil
	}
	if err := hold.read(data); err != nil {
		return LaneHold{}, err
	}
	hold.Reason, hold.By = printableReason(hold.Reason), printableReason(hold.By)
	return hold, nil
}

// holdForm is an example of the content of a file that pauses or closes.
const holdForm = `{"until": "2026-11-23T09:00:00+01:00", "reason": "..."}`

var errHoldForm = errors.New("it is no JSON object like " + holdForm + ", or is cut off")

// read decodes the members of a JSON object; the error is for people.
func (h *LaneHold) read(data []byte) error {
	in := json.NewDecoder(bytes.NewReader(data))
	if _, err := in.Token(); err != nil {
		return errHoldForm
	}
	seen := map[string]bool{}
	for in.More() {
		token, err := in.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || in.Decode(&value) != nil {
			return errHoldForm
		}
		if seen[name] {
			return fmt.Errorf("%q is given twice", shorten(name))
		}
		seen[name] = true
		if err := h.set(name, value); err != nil {
			return err
		}
	}
	if _, err := in.Token(); err != nil {
		return errHoldForm
	}
	if len(bytes.TrimSpace(data[in.InputOffset():])) > 0 {
		return errors.New("there is more than one JSON object in it")
	}
	return nil
}

// set decodes one member; null is not given.
func (h *LaneHold) set(name string, value json.RawMessage) error {
	var until *string
	member, known := map[string]struct {
		into any
		kind string
	}{
		"until":  {&until, `a time like "2026-11-23T09:00:00+01:00"`},
		"reason": {&h.Reason, "a text"}, "by": {&h.By, "a text"},
		"trial": {&h.Trial, "the ID of an operation"},
	}[name]
	if !known {
		return fmt.Errorf("%q is not known; known are until, reason, by", shorten(name))
	}
	err := json.Unmarshal(value, member.into)
	if err == nil && until != nil {
		var at time.Time
		at, err = time.Parse(time.RFC3339Nano, *until)
		h.Until = &at
	}
	if err != nil {
		return fmt.Errorf("%s: %s is not %s", name, shorten(string(value)), member.kind)
	}
	return nil
}

// printableReason turns a text into one printable line.
func printableReason(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }),
		" ")
	return strings.ToValidUTF8(text[:min(len(text), MaxLaneReason)], "") // without half a character at the end
}

// LaneFiles are the files of lanes/, with which any process pauses, closes and resizes lanes.
type LaneFiles struct{ *storage }

// OwnerLanes are the files of lanes/ for the daemon, which also keeps its own there.
type OwnerLanes struct{ *LaneFiles }

// Dir returns the absolute path of lanes/.
func (l *LaneFiles) Dir() string { return filepath.Join(l.dir, lanesDir) }

// List lists the files of lanes/ that control something, and the stray names that look as if
// they should.
func (l *LaneFiles) List() (files []LaneFile, odd []string, err error) {
	entries, err := l.readFolder(lanesDir)
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", lanesDir, err)
	}
	for _, entry := range entries {
		switch f, ok := ParseLaneFile(entry.Name()); {
		case ok:
			files = append(files, f)
		case StrayLaneFile(entry.Name()):
			odd = append(odd, entry.Name())
		}
	}
	return files, odd, nil
}

// Read reads a file of lanes/. The error wraps fs.ErrNotExist if there is none, and is a
// *LaneFileError if its content is invalid; the value then still shows whether the file changes
// later.
func (l *LaneFiles) Read(f LaneFile) (LaneValue, error) {
	info, err := l.root.Lstat(f.path())
	if err != nil {
		return LaneValue{}, err
	}
	v := LaneValue{info: info}
	if !info.Mode().IsRegular() {
		return v, &LaneFileError{f, fmt.Sprintf("it is a %s and not a file", files.KindOf(info.Mode()))}
	}
	data, err := l.readRegular(f.path(), laneFileLimit)
	switch {
	case errors.Is(err, fs.ErrPermission) && f.Control != LaneCapacity:
		v.Complete = true // the name is enough
		return v, nil
	case errors.Is(err, fs.ErrNotExist):
		return LaneValue{}, err
	case err != nil:
		if large, ok := errors.AsType[*CorruptError](err); ok {
			return v, &LaneFileError{f, large.Reason}
		}
		return v, &LaneFileError{f, "it cannot be read: " + err.Error()}
	}
	v.Complete = bytes.HasSuffix(data, []byte("\n"))
	if f.Control == LaneCapacity {
		v.Capacity, err = ParseLaneCapacity(string(bytes.TrimSpace(data)))
	} else {
		v.Hold, err = parseHold(bytes.TrimSpace(data))
	}
	if err != nil {
		return v, &LaneFileError{f, err.Error()}
	}
	return v, nil
}

// Hold pauses or closes a lane, or AllLanes, and replaces an earlier hold. It is durable when
// it returns.
func (l *LaneFiles) Hold(f LaneFile, hold LaneHold) error {
	hold.Reason, hold.By = printableReason(hold.Reason), printableReason(hold.By)
	data, err := json.Marshal(hold)
	if err != nil {
		return fmt.Errorf("write %s: %w", f, err)
	}
	return l.write(f, append(data, '\n'))
}

// SetCapacity sets how many operations run in a lane at once; -1 is unlimited. It is durable
// when it returns.
func (l *LaneFiles) SetCapacity(lane string, n int) error {
	return l.write(LaneFile{lane, LaneCapacity}, []byte(FormatLaneCapacity(n)+"\n"))
}

func (l *LaneFiles) write(f LaneFile, data []byte) error {
	if _, ok := ParseLaneFile(f.String()); !ok {
		return fmt.Errorf("write %s: there is no such file of a lane", f)
	}
	if err := l.files.Replace(f.path(), data, false); err != nil {
		if info, statErr := l.root.Lstat(f.path()); statErr == nil && info.IsDir() {
			return &BlockedError{f.path()}
		}
		return err
	}
	return l.syncFolder(lanesDir)
}

// Release removes a file of lanes/: the lane is resumed or opened, or returns to the configured
// capacity. It reports whether the file existed, and is durable when it returns.
func (l *LaneFiles) Release(f LaneFile) (bool, error) {
	err := l.root.Remove(f.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove %s/%s: %w", lanesDir, f, err)
	}
	return true, l.syncFolder(lanesDir)
}

// Expire removes an expired file of lanes/, unless it has changed since it was read as v.
func (l *OwnerLanes) Expire(f LaneFile, v LaneValue) (bool, error) {
	if !l.Unchanged(f, v) {
		return false, nil
	}
	return l.Release(f)
}

// Unchanged reports whether a file of lanes/ is still the file from which v was read.
func (l *LaneFiles) Unchanged(f LaneFile, v LaneValue) bool {
	info, err := l.root.Lstat(f.path())
	return err == nil && v.info != nil && sameContent(info, v.info)
}

// LaneTimesKind is a kind of file of lanes/ in which the daemon keeps times for its successor. It
// controls nothing.
type LaneTimesKind string

// The values of LaneTimesKind.
const (
	// LaneStarts are the last starts of a lane with a rate limit.
	LaneStarts LaneTimesKind = ".starts"
	// LaneFailures are the failures that the lane's breaker counts while it is closed.
	LaneFailures LaneTimesKind = ".failures"
)

// MaxLaneTimes is how many times a file holds; only the newest ones are kept.
const MaxLaneTimes = 4096

// laneTimesLimit bounds how much of such a file is read, in bytes; no time is longer than 40.
const laneTimesLimit = 40 * MaxLaneTimes

// isLaneTimes reports whether a name in lanes/ is that of a file for the daemon's own use.
func isLaneTimes(name string) bool {
	return strings.HasSuffix(name, rotationSuffix) || strings.HasSuffix(name, string(LaneStarts)) ||
		strings.HasSuffix(name, string(LaneFailures))
}

// Times returns the times in such a file, in the order in which they were written. Unreadable
// content is skipped: if the file is lost, the daemon only forgets these times.
func (l *LaneFiles) Times(lane string, note LaneTimesKind) []time.Time {
	data, err := l.readRegular(path.Join(lanesDir, lane+string(note)), laneTimesLimit)
	if err != nil {
		return nil
	}
	var times []time.Time
	for line := range bytes.Lines(data) {
		if at, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSpace(line))); err == nil {
			times = append(times, at)
		}
	}
	return times
}

// SetTimes replaces the times; without any it removes the file. It does not sync: after a power
// cut an older file may exist, or none.
func (l *OwnerLanes) SetTimes(lane string, note LaneTimesKind, times []time.Time) error {
	name := path.Join(lanesDir, lane+string(note))
	if len(times) == 0 {
		if err := l.root.Remove(name); err != nil && !files.IsMissing(err) {
			return fmt.Errorf("remove the times of a lane: %w", err)
		}
		return nil
	}
	times = times[max(0, len(times)-MaxLaneTimes):]
	data := make([]byte, 0, 40*len(times))
	for _, at := range times {
		data = append(at.AppendFormat(data, time.RFC3339Nano), '\n')
	}
	return l.files.ReplaceUnsynced(name, data)
}

// rotationSuffix is the suffix of the file that counts the runs of a lane with a rotating
// environment.
const rotationSuffix = ".rotation"

// Rotation returns how many runs of a lane have taken a turn, 0 if unknown.
func (l *LaneFiles) Rotation(lane string) uint64 {
	data, _ := l.readRegular(path.Join(lanesDir, lane+rotationSuffix), laneFileLimit) // nil is no number
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// SetRotation stores how many runs of a lane have taken a turn. It does not sync: a power cut may
// repeat a turn.
func (l *OwnerLanes) SetRotation(lane string, n uint64) error {
	return l.files.ReplaceUnsynced(path.Join(lanesDir, lane+rotationSuffix), fmt.Appendf(nil, "%d\n", n))
}
