package submit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jobdir/jobdir/catalog"
)

// MostEntries is how many submits one list may have.
const MostEntries = 10_000

// MaxEntry is the size of the largest entry, in bytes.
const MaxEntry = 1 << 20

// ListError says what is wrong with a list as a whole.
type ListError struct{ Reason string }

func (e *ListError) Error() string { return "the list of submits cannot be taken: " + e.Reason }

// IsList tells whether a JSON text is a list of entries, and not one.
func IsList(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
}

// ParseList reads a JSON array of entries. The error is a [*ListError], or an [*EntryError] for the first entry that is wrong.
func ParseList(data []byte) ([]Entry, error) {
	in := json.NewDecoder(bytes.NewReader(data))
	if _, err := in.Token(); err != nil {
		return nil, listError(err)
	}
	var entries []Entry
	for in.More() {
		if len(entries) == MostEntries {
			count := len(entries)
			for ; in.More(); count++ {
				var rest json.RawMessage
				if err := in.Decode(&rest); err != nil {
					return nil, listError(err)
				}
			}
			return nil, &ListError{fmt.Sprintf("it has %d entries, and at most %d are taken at once", count, MostEntries)}
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, listError(err)
		}
		if len(raw) > MaxEntry {
			return nil, &EntryError{len(entries), &ListError{fmt.Sprintf("it has %d bytes, and an entry has at most %d", len(raw), MaxEntry)}}
		}
		entry, err := ParseEntry(raw)
		if err != nil {
			return nil, &EntryError{len(entries), err}
		}
		entries = append(entries, entry)
	}
	if _, err := in.Token(); err != nil {
		return nil, listError(err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, &ListError{"text follows it"}
	}
	if len(entries) == 0 {
		return nil, &ListError{"it is empty"}
	}
	return entries, nil
}

func listError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &ListError{"it is cut off"}
	}
	return &ListError{err.Error()}
}

// UnknownJobError says that there is no such job.
type UnknownJobError struct {
	Group, Name string
	// Groups are those that there are, when the group is not among them; else Jobs are those of the group.
	Groups []string
	Jobs   []string
}

func (e *UnknownJobError) Error() string {
	if e.Jobs == nil {
		return "There is no group " + clip(e.Group)
	}
	return fmt.Sprintf("There is no job %s in group %s", clip(e.Name), clip(e.Group))
}

// clip shortens what is not to be quoted.
func clip(text string) string {
	q := quote(text)
	return q[1 : len(q)-1]
}

// Find returns the job of an address. The error is an [*UnknownJobError].
func Find(c *catalog.Catalog, group, name string) (*catalog.Definition, error) {
	if def := c.Get(group, name); def != nil {
		return def, nil
	}
	groups := c.Groups()
	if !slices.Contains(groups, group) {
		return nil, &UnknownJobError{Group: group, Name: name, Groups: groups}
	}
	jobs := []string{}
	for _, def := range c.All() {
		if def.Group == group {
			jobs = append(jobs, def.Name)
		}
	}
	return nil, &UnknownJobError{Group: group, Name: name, Jobs: jobs}
}

// Request binds an entry to the jobs that there are. Errors are an [*UnknownJobError] and a [*catalog.ParamError].
func (e *Entry) Request(c *catalog.Catalog) (Request, error) {
	def, err := Find(c, e.Group, e.Job)
	if err != nil {
		return Request{}, err
	}
	params, err := def.BindJSON(e.Params)
	if err != nil {
		return Request{}, err
	}
	return Request{Definition: def, Params: params, Options: e.Options}, nil
}

// Requests binds entries. The error is an [*EntryError] when there are several.
func Requests(c *catalog.Catalog, entries []Entry) ([]Request, error) {
	requests := make([]Request, len(entries))
	for i := range entries {
		var err error
		if requests[i], err = entries[i].Request(c); err != nil {
			return nil, entryError(i, len(entries), err)
		}
	}
	return requests, nil
}
