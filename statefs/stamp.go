package statefs

import (
	"bytes"
	"encoding/json"
	"time"
)

// StampFormat is the first line of every state and request file: ISO 8601 with microseconds and offset.
const StampFormat = "2006-01-02T15:04:05.000000-07:00"

// clockSlack is how far the first line of a request may be ahead of its modification time: the time of a file comes from a coarser
// clock, which may be another machine's.
const clockSlack = 2 * time.Second

// Stamp is the content of a state or request file.
type Stamp struct {
	// At is when the file was created: its first line, or its modification time when it is empty or has no time.
	At time.Time
	// Args is the JSON object on the second line of a request, nil when there is none.
	Args json.RawMessage

	// Odd says that there is something in the file that is neither a time nor one JSON object. For what needs no particulars the name says enough.
	Odd bool

	// future is when a request of the future says that it was asked; zero for all others.
	future time.Time
}

// Compare says of two requests which one was asked first. Those of the future, which all count as of now, keep their own order: the
// clock may have been set back since both were made.
func (s Stamp) Compare(other Stamp) int {
	if !s.future.IsZero() && !other.future.IsZero() {
		return s.future.Compare(other.future)
	}
	return s.At.Compare(other.At)
}

// formatStamp returns the content of a state or request file.
func formatStamp(at time.Time, args json.RawMessage) []byte {
	out := append([]byte(at.Format(StampFormat)), '\n')
	if len(args) > 0 {
		out = append(append(out, args...), '\n')
	}
	return out
}

// parseStamp reads the content of a state or request file whose modification time is modified. It never fails: what has no
// time counts as of its modification, because `echo > ID.pause_requested` must work as `touch` does.
func parseStamp(content []byte, modified time.Time) Stamp {
	stamp := Stamp{At: modified}
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	if at, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSpace(first))); err == nil {
		stamp.At, content = at, rest
	}
	content = bytes.TrimSpace(content)
	line, _, _ := bytes.Cut(content, []byte("\n"))
	for _, text := range [][]byte{content, bytes.TrimSpace(line)} { // over several lines too, and what follows a whole one means nothing
		var args bytes.Buffer
		if len(text) > 0 && text[0] == '{' && json.Compact(&args, text) == nil {
			stamp.Args = args.Bytes()
			return stamp
		}
	}
	stamp.Odd = len(content) > 0
	return stamp
}

// asked returns the stamp of a request with the time at which it was last asked: the later one of its first line and of its file,
// which was modified then, so that a `touch` of a request that is still there asks again. A time that is still to come would win over
// whatever is asked until then, so it counts as of the file, and a file of the future as of now.
func (s Stamp) asked(modified, now time.Time) Stamp {
	if modified.After(now) {
		s.future = modified
		if s.At.After(modified) && !s.At.After(modified.Add(clockSlack)) {
			s.future = s.At // finer than the clock of the file
		}
		modified = now
	}
	if s.At.Before(modified) || s.At.After(now) || s.At.After(modified.Add(clockSlack)) {
		s.At = modified
	}
	return s
}

// pidNamespace returns the PID namespace that a marker says its program lives in, "" when it says none.
func (s Stamp) pidNamespace() string {
	var args struct {
		PIDNamespace string `json:"pid_namespace"`
	}
	if len(s.Args) == 0 || json.Unmarshal(s.Args, &args) != nil {
		return ""
	}
	return args.PIDNamespace
}
