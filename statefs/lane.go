package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// AllLanes is the word for every lane, which none can have as its name.
const AllLanes = "all"

var laneName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidLane tells whether a lane can have this name; AllLanes is none.
func ValidLane(name string) bool { return laneName.MatchString(name) && name != AllLanes }

// LaneControl is what a file of lanes/ says of a lane: the ending of its name.
type LaneControl string

// The values of LaneControl.
const (
	// LanePaused: nothing starts in the lane.
	LanePaused LaneControl = "paused"
	// LaneClosed: nothing is submitted to the lane.
	LaneClosed LaneControl = "closed"
	// LaneCapacity: so many run in the lane at once, whatever the configuration says.
	LaneCapacity LaneControl = "capacity"
)

var laneControls = []LaneControl{LanePaused, LaneClosed, LaneCapacity}

// LaneFile names a file of lanes/. Its lane is AllLanes for what holds in every lane.
type LaneFile struct {
	Lane    string
	Control LaneControl
}

// String is the name of the file, such as cookie.paused.
func (f LaneFile) String() string { return f.Lane + "." + string(f.Control) }

func (f LaneFile) path() string { return path.Join(lanesDir, f.String()) }

// ParseLaneFile reads the name of a file of lanes/; false: it controls nothing.
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

// OddLaneFile tells of a name in lanes/ whether somebody may believe that it controls a lane, and it does not.
func OddLaneFile(name string) bool {
	_, ok := ParseLaneFile(name)
	return !ok && !strings.HasPrefix(name, ".") && !isNote(name)
}

// LaneHold is what a file says that pauses or closes a lane. The zero value, which `touch` makes, does so until the file is removed.
type LaneHold struct {
	// Until is when it ends by itself; nil: never.
	Until *time.Time `json:"until,omitempty"`
	// Reason is for people; it is shown wherever somebody asks why.
	Reason string `json:"reason,omitempty"`
	// By is who did it; HeldByBreaker is the daemon itself.
	By string `json:"by,omitempty"`
	// Trial is the operation that a breaker has let through to see whether the lane works again; the zero ID is none.
	Trial ID `json:"trial,omitzero"`
}

// HeldByBreaker is LaneHold.By of a pause that the daemon made after too many failures.
const HeldByBreaker = "breaker"

// LaneValue is the content of a file of lanes/.
type LaneValue struct {
	// Hold is that of LanePaused and LaneClosed, Capacity that of LaneCapacity; -1 is unlimited.
	Hold     LaneHold
	Capacity int
	// Whole says that nobody is in the middle of writing it, as far as the text tells.
	Whole bool

	info fs.FileInfo
}

// Regular says that it is a file, whatever is in it.
func (v LaneValue) Regular() bool { return v.info != nil && v.info.Mode().IsRegular() }

// Same says whether two values were read of the same file, unchanged; false when either was not read at all.
func (v LaneValue) Same(other LaneValue) bool {
	return v.info != nil && other.info != nil && sameContent(v.info, other.info)
}

func sameContent(one, other fs.FileInfo) bool {
	return os.SameFile(one, other) && one.ModTime().Equal(other.ModTime()) && one.Size() == other.Size()
}

// LaneFileError says that a file of lanes/ has a content that means nothing.
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
	// MaxLaneReason is the length of the longest reason, in bytes; more is cut off.
	MaxLaneReason = 1000
)

// ParseLaneCapacity reads a capacity as people write it: a whole number from 0, or unlimited, which is -1. The error says what is wrong.
func ParseLaneCapacity(text string) (int, error) {
	n, reason := parseCapacity(text)
	if reason != "" {
		return 0, errors.New(reason)
	}
	return n, nil
}

func parseCapacity(text string) (int, string) {
	if text == unlimitedText {
		return -1, ""
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > MaxLaneCapacity {
		return 0, fmt.Sprintf("capacity %q is neither a whole number from 0 to %d nor %q", shorten(text), MaxLaneCapacity, unlimitedText)
	}
	return int(n), ""
}

// FormatLaneCapacity is the opposite of ParseLaneCapacity.
func FormatLaneCapacity(n int) string {
	if n < 0 {
		return unlimitedText
	}
	return strconv.Itoa(n)
}

// parseHold reads the JSON object of a file that pauses or closes; other text, which `echo` makes, is the reason.
func parseHold(data []byte) (hold LaneHold, problem string) {
	if len(data) == 0 {
		return LaneHold{}, ""
	}
	if data[0] != '{' {
		return LaneHold{Reason: printableReason(string(data))}, ""
	}
	if problem = hold.read(data); problem != "" {
		return LaneHold{}, problem
	}
	hold.Reason, hold.By = printableReason(hold.Reason), printableReason(hold.By)
	return hold, ""
}

// holdForm is what a file that pauses or closes is like.
const holdForm = `{"until": "2026-11-23T09:00:00+01:00", "reason": "..."}`

// read reads the members of a JSON object, and says what is wrong with it in words for a person.
func (h *LaneHold) read(data []byte) (problem string) {
	in := json.NewDecoder(bytes.NewReader(data))
	if _, err := in.Token(); err != nil {
		return "it is no JSON object like " + holdForm
	}
	seen := map[string]bool{}
	for in.More() {
		token, err := in.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || in.Decode(&value) != nil {
			return "it is no JSON object like " + holdForm + ", or is cut off"
		}
		if seen[name] {
			return fmt.Sprintf("%q is given twice", shorten(name))
		}
		seen[name] = true
		if problem := h.set(name, value); problem != "" {
			return problem
		}
	}
	if _, err := in.Token(); err != nil {
		return "it is no JSON object like " + holdForm + ", or is cut off"
	}
	if len(bytes.TrimSpace(data[in.InputOffset():])) > 0 {
		return "there is more than one JSON object in it"
	}
	return ""
}

// set sets one member.
func (h *LaneHold) set(name string, value json.RawMessage) (problem string) {
	var text *string
	isText := json.Unmarshal(value, &text) == nil
	if isText && text == nil {
		return "" // null: it is not given
	}
	switch name {
	case "until":
		if isText {
			if at, err := time.Parse(time.RFC3339Nano, *text); err == nil {
				h.Until = &at
				return ""
			}
		}
		return fmt.Sprintf("until: %s is not a time like \"2026-11-23T09:00:00+01:00\"", shorten(string(value)))
	case "reason", "by":
		if !isText {
			return fmt.Sprintf("%s: %s is not a text", name, shorten(string(value)))
		}
		if name == "by" {
			h.By = *text
		} else {
			h.Reason = *text
		}
		return ""
	case "trial":
		if isText {
			if id, err := ParseID(*text); err == nil {
				h.Trial = id
				return ""
			}
		}
		return fmt.Sprintf("trial: %s is not the ID of an operation", shorten(string(value)))
	}
	return fmt.Sprintf("%q is not known; known are until, reason, by", shorten(name))
}

// printableReason makes one line that can be shown of what somebody wrote.
func printableReason(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }), " ")
	for len(text) > MaxLaneReason {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
