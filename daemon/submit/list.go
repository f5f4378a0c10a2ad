package submit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
)

// MaxEntries is the maximum number of submits in a list.
const MaxEntries = 10_000

// MaxEntry is the maximum size of an entry, in bytes.
const MaxEntry = 1 << 20

// ListError describes what is wrong with a list as a whole.
type ListError struct{ Reason string }

func (e *ListError) Error() string { return "the list of submits cannot be taken: " + e.Reason }

// IsList reports whether a JSON text is a list of entries instead of a single entry.
func IsList(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
}

// ParseFile parses a JSON text that is a list of entries or a single entry.
func ParseFile(data []byte) ([]Entry, error) {
	if IsList(data) {
		return ParseList(data)
	}
	entry, err := ParseEntry(data)
	return []Entry{entry}, err
}

// ParseList parses a JSON array of entries. The error is a [*ListError], or an [*EntryError] for the first
// invalid entry.
func ParseList(data []byte) ([]Entry, error) {
	in := json.NewDecoder(bytes.NewReader(data))
	if _, err := in.Token(); err != nil {
		return nil, listError(err)
	}
	var entries []Entry
	for in.More() {
		if len(entries) == MaxEntries {
			count := len(entries)
			for ; in.More(); count++ {
				var rest json.RawMessage
				if err := in.Decode(&rest); err != nil {
					return nil, listError(err)
				}
			}
			return nil, &ListError{fmt.Sprintf("it has %d entries, and at most %d are taken at once", count, MaxEntries)}
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, listError(err)
		}
		if len(raw) > MaxEntry {
			return nil, &EntryError{len(entries), &ListError{fmt.Sprintf("it has %d bytes, and an entry has at most %d",
				len(raw), MaxEntry)}}
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

func listError(err error) error { return &ListError{param.JSONError(err)} }

// UnknownJobError means that a job does not exist.
type UnknownJobError struct {
	Group, Name string
	// Groups are the existing groups if the group is unknown; otherwise Jobs are the jobs of the group.
	Groups []string
	Jobs   []string
}

func (e *UnknownJobError) Error() string {
	if e.Jobs == nil {
		return "There is no group " + clip(e.Group)
	}
	return fmt.Sprintf("There is no job %s in group %s", clip(e.Name), clip(e.Group))
}

// clip shortens a text that is too long to quote.
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

// Request looks up the job of an entry and binds its parameters. Errors are an [*UnknownJobError] and a
// [*catalog.ParamError].
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

// Requests calls [Entry.Request] for each entry. The error is an [*EntryError] if there are several entries.
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
