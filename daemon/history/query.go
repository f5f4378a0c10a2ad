package history

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Sort is the time by which a list is sorted, the newest first.
type Sort string

// The orders.
const (
	// ByCreated never changes for an operation, so consecutive pages show each operation once.
	ByCreated Sort = "created"
	// ByUpdated moves an operation to the front when it changes.
	ByUpdated Sort = "updated"
)

// Query selects operations for a list. Empty fields do not restrict it.
type Query struct {
	Statuses []statefs.State
	Results  []statefs.Result
	// Job is the name of a job, or GROUP/NAME.
	Job, Group, Lane string
	// Day is the day in the ID, as 2025-11-26.
	Day      string
	Endpoint string
	Key, Tag string
	// Number is the number at the end of the ID.
	Number uint64
	// Since and Until bound the time of creation: at or after Since, before Until.
	Since, Until time.Time
	// UpdatedSince bounds the time of the last change: at or after.
	UpdatedSince time.Time
	// Attention selects operations that need a person, or have an optional step that does.
	Attention bool
	// Text must occur in the ID, the parameters (their first 2 KiB) or the error, in any letter
	// case.
	Text string

	Sort Sort
	// Limit is how many operations are returned at most, Offset how many are skipped.
	Limit, Offset int
	// After is where the previous page ended.
	After *Cursor
}

// CountsStatuses reports whether the query asks only how many operations have one of its statuses.
func (q *Query) CountsStatuses() bool {
	texts := q.Job + q.Group + q.Lane + q.Day + q.Endpoint + q.Key + q.Tag + q.Text
	return len(q.Statuses) > 0 && q.Limit == 0 && q.Offset == 0 && q.After == nil && texts == "" &&
		len(q.Results) == 0 && q.Number == 0 &&
		!q.Attention && q.Since.IsZero() && q.Until.IsZero() && q.UpdatedSince.IsZero()
}

// Cursor is a place in a list.
type Cursor struct {
	sort Sort
	key  []byte
}

// Of reports whether the cursor belongs to a list with this order.
func (c *Cursor) Of(sort Sort) bool { return c.sort == sort }

const cursorSize = 24

// String returns the cursor as text for a client.
func (c *Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{c.sort[0]}, c.key...))
}

// ErrCursor means that a text is not a cursor.
var ErrCursor = errors.New("not a place in a list: send the value of next of the previous page, with the same sort")

// ParseCursor reads the text of a cursor.
func ParseCursor(text string) (*Cursor, error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) != cursorSize+1 {
		return nil, ErrCursor
	}
	for _, sort := range []Sort{ByCreated, ByUpdated} {
		if sort[0] == data[0] {
			return &Cursor{sort, data[1:]}, nil
		}
	}
	return nil, ErrCursor
}

// filter is a query prepared for many rows.
type filter struct {
	*Query
	group, job                 []byte
	since, until, updatedSince int64
	text                       []byte
	tag                        []byte // Tag as JSON
}

func (q *Query) filter() *filter {
	f := &filter{
		Query: q, group: []byte(q.Group), job: []byte(q.Job), since: nanos(q.Since), until: nanos(q.Until),
		updatedSince: nanos(q.UpdatedSince), text: []byte(strings.ToLower(q.Text)),
	}
	f.tag, _ = json.Marshal(q.Tag) // encoding a string cannot fail
	if group, job, ok := strings.Cut(q.Job, "/"); ok {
		f.job = []byte(job)
		if q.Group == "" || q.Group == group {
			f.group = []byte(group)
		} else {
			f.job = separator // no job has this name
		}
	}
	return f
}

// counted reports whether the counts alone give the number of matches, apart from the times.
func (f *filter) counted() bool {
	return f.Key == "" && f.Tag == "" && f.Endpoint == "" && !f.Attention && f.updatedSince == 0 &&
		len(f.text) == 0 && f.Number == 0
}

// matchesDimensions reports whether rows with these dimensions can match.
func (f *filter) matchesDimensions(d dimensions) bool {
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, statefs.State(d.status))) &&
		(len(f.Results) == 0 || slices.Contains(f.Results, statefs.Result(d.result))) &&
		(len(f.job) == 0 || bytes.Equal(f.job, d.job)) && (len(f.group) == 0 || bytes.Equal(f.group, d.group)) &&
		(f.Lane == "" || f.Lane == string(d.lane)) && (f.Day == "" || f.Day == string(d.day))
}

func (f *filter) matchesTimes(created int64) bool {
	return (f.since == 0 || created >= f.since) && (f.until == 0 || created < f.until)
}

// matches reports whether a row matches.
func (f *filter) matches(r *parsedRow) bool {
	if f.Number != 0 && f.Number != sequenceOf(r.id) {
		return false
	}
	if !f.matchesTimes(r.created) || f.updatedSince != 0 && r.updated < f.updatedSince {
		return false
	}
	if !f.matchesDimensions(dimensions{dayOf(r.id), r.status, r.job, r.group, r.lane, r.result}) {
		return false
	}
	if f.Attention && !statefs.State(r.status).NeedsPerson() && r.flags&flagOptionalNeedsPerson == 0 {
		return false
	}
	return (f.Key == "" || f.Key == string(r.key)) && (f.Endpoint == "" || f.Endpoint == string(endpointOf(r.id))) &&
		(f.Tag == "" || r.tagged(f.Tag, f.tag)) && (len(f.text) == 0 || f.matchesText(r))
}

func (f *filter) matchesText(r *parsedRow) bool {
	texts := r.texts()
	return slices.ContainsFunc(texts[:], func(text []byte) bool { return bytes.Contains(bytes.ToLower(text), f.text) })
}

// dayOf and endpointOf slice an ID without copying it: ENDPOINT_DAY_TIME_pPID_rN.
func dayOf(id []byte) []byte {
	end := stampAt(id)
	if end < 0 {
		return nil
	}
	return id[end+1 : end+1+len(time.DateOnly)]
}

func sequenceOf(id []byte) uint64 {
	n, _ := strconv.ParseUint(string(id[bytes.LastIndexByte(id, 'r')+1:]), 10, 64)
	return n
}

func endpointOf(id []byte) []byte { return id[:max(0, stampAt(id))] }

func stampAt(id []byte) int {
	r := bytes.LastIndex(id, []byte("_r"))
	if r < 0 {
		return -1
	}
	return bytes.LastIndex(id[:r], []byte("_p")) - len("_2006-01-02_15-04-05")
}

// Matches reports whether a row matches.
func (q *Query) Matches(p Packed) bool {
	r, err := p.parse()
	return err == nil && q.filter().matches(&r)
}

// ParseTime parses a time: RFC 3339, 2025-11-26 13:07:00 or a date (its midnight) in the zone of
// this machine, or a duration before now such as 2h or 7d. It returns false for other texts.
func ParseTime(text string, now time.Time) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, true
	}
	for _, layout := range []string{time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, true
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), true
		}
	}
	ago, err := time.ParseDuration(text)
	return now.Add(-ago), err == nil && ago >= 0
}
