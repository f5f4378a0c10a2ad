package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/jobdir/jobdir/statefs"
)

// Row is what a list shows of an operation.
type Row struct {
	// Number is the number of the end in the feed, 0 while the operation is live.
	Number           uint64
	ID               statefs.ID
	Job, Group, Lane string
	Status           statefs.State
	Result           statefs.Result
	Created, Updated time.Time
	// Started and Finished are zero when that has not happened.
	Started, Finished time.Time
	Key               string
	Tags              []string
	// Code and Message describe the error.
	Code, Message string
	// Params is the JSON object of the parameters, truncated if ParamsCut is true.
	Params    string
	ParamsCut bool
	// RetryOf is the operation that this one retries; zero for none.
	RetryOf statefs.ID
	Pinned  bool
	// NeedsPerson marks a row that is only in the feed: the operation stopped for a person and has
	// not ended.
	NeedsPerson bool
	// OptionalNeedsPerson means that an optional step of the operation waits for a person.
	OptionalNeedsPerson bool
	// Bytes is the disk usage of its files.
	Bytes int64
	// EarlierStop is the number of its previous stop for a person; 0 for none.
	EarlierStop uint64
}

// paramsLimit and messageLimit bound the parameters and the error message in a row, in bytes.
const (
	paramsLimit  = 2 << 10
	messageLimit = 1 << 10
)

// nameLimit bounds names in the index, in bytes. Those of jobdir are shorter; a record written by
// another program may contain anything.
const nameLimit = 1 << 10

func cut(name string) string { return name[:min(len(name), nameLimit)] }

// queuedRow is a row on its way into the index. It is immutable.
type queuedRow struct {
	Row
	packed Packed
}

// RowOf makes the row of an operation from its record.
func RowOf(rec *statefs.Record) Row {
	lane, _ := rec.LaneAndLimits() // the present lane, which may be that of a step
	if rec.Status.Terminal() {
		lane = rec.Lane
	}
	r := Row{
		Number: rec.FinishedSeq, ID: rec.ID, Job: cut(rec.Job), Group: cut(rec.Group), Lane: cut(lane), Status: rec.Status,
		Result: statefs.Result(cut(string(rec.Result))), Created: rec.CreatedAt, Updated: rec.UpdatedAt, Key: cut(rec.Key),
		Tags: rec.Tags, Pinned: rec.Pinned, EarlierStop: rec.NeedsPersonSeq,
	}
	if rec.StartedAt != nil {
		r.Started = *rec.StartedAt
	}
	if rec.FinishedAt != nil {
		r.Finished = *rec.FinishedAt
	}
	if rec.Error != nil {
		r.Code, r.Message = rec.Error.Code, rec.Error.Message[:min(len(rec.Error.Message), messageLimit)]
	}
	r.OptionalNeedsPerson = (rec.Trailing || !rec.Status.Terminal()) && rec.FailedOptionalStep() != nil
	if rec.RetryOf != nil {
		r.RetryOf = *rec.RetryOf
	}
	r.Params = string(rec.Params[:min(len(rec.Params), paramsLimit)])
	r.ParamsCut = len(rec.Params) > paramsLimit
	return r
}

// Record returns what the row knows of the record.
func (r *Row) Record() *statefs.Record {
	rec := statefs.UnknownRecord(r.ID, r.Created)
	rec.Job, rec.Group, rec.Lane, rec.Key, rec.Tags = r.Job, r.Group, r.Lane, r.Key, r.Tags
	rec.Status, rec.Result, rec.UpdatedAt, rec.Pinned, rec.FinishedSeq = r.Status, r.Result, r.Updated, r.Pinned, r.Number
	if !r.ParamsCut && r.Params != "" {
		rec.Params = json.RawMessage(r.Params)
	}
	rec.StartedAt, rec.FinishedAt = statefs.OptionalTime(r.Started), statefs.OptionalTime(r.Finished)
	if r.Code != "" {
		rec.Error = &statefs.Fault{Code: r.Code, Message: r.Message}
	}
	if !r.RetryOf.IsZero() {
		rec.RetryOf = &r.RetryOf
	}
	return rec
}

// stopRow makes the feed's row for an operation that stopped for a person.
func stopRow(rec *statefs.Record) Row {
	r := RowOf(rec)
	r.Number, r.NeedsPerson, r.Status, r.Result, r.EarlierStop = rec.NeedsPersonSeq, true, statefs.FailedManual, "", 0
	r.Finished = time.Time{}
	for _, t := range rec.Transitions {
		if t.To == statefs.FailedManual {
			r.Updated = t.At
		}
	}
	return r
}

// Packed is the encoded form of a row in the index. It is immutable.
type Packed []byte

// packedVersion is the first byte of a packed row. A file with other versions is rebuilt.
const packedVersion = 1

const (
	flagPinned byte = 1 << iota
	flagNeedsPerson
	flagParamsCut
	flagOptionalNeedsPerson
)

// Pack encodes the row.
func (r *Row) Pack() Packed {
	var buffer [1024]byte // enough for most rows; the result is kept for long and has no spare capacity
	var flags byte
	for _, f := range [...]struct {
		flag byte
		on   bool
	}{
		{flagPinned, r.Pinned},
		{flagNeedsPerson, r.NeedsPerson},
		{flagParamsCut, r.ParamsCut},
		{flagOptionalNeedsPerson, r.OptionalNeedsPerson},
	} {
		if f.on {
			flags |= f.flag
		}
	}
	b := append(buffer[:0], packedVersion, flags)
	b = binary.AppendUvarint(b, r.Number)
	b = binary.AppendUvarint(b, r.EarlierStop)
	b = binary.AppendVarint(b, r.Bytes)
	for _, at := range [...]time.Time{r.Created, r.Updated, r.Started, r.Finished} {
		b = binary.AppendVarint(b, nanos(at))
	}
	var tags []byte
	if len(r.Tags) > 0 {
		tags, _ = json.Marshal(r.Tags) // encoding strings cannot fail
	}
	for _, text := range [...]string{
		r.ID.String(), r.Job, r.Group, r.Lane, string(r.Status), string(r.Result), r.Key, r.Code, r.Message, r.Params,
		r.RetryOf.String(), string(tags),
	} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return bytes.Clone(b)
}

// nanos returns the time as stored in the index; 0 means no time.
func nanos(at time.Time) int64 {
	switch {
	case at.IsZero():
		return 0
	case at.Year() > 2261: // beyond the range of nanoseconds
		return math.MaxInt64
	case at.Year() < 1679:
		return math.MinInt64
	}
	return at.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Retries returns the operation that this one retries, and false when there is none.
func (p Packed) Retries() (statefs.ID, bool) {
	parsed, err := p.parse()
	if err != nil || len(parsed.retryOf) == 0 {
		return statefs.ID{}, false
	}
	id, err := statefs.ParseID(string(parsed.retryOf))
	return id, err == nil
}

// Unpack decodes the row. An error means that it is damaged.
func (p Packed) Unpack() (Row, error) {
	parsed, err := p.parse()
	if err != nil {
		return Row{}, err
	}
	return parsed.row()
}

// parsedRow is a decoded row whose texts are not copied.
type parsedRow struct {
	flags                               byte
	number, earlierStop                 uint64
	bytes                               int64
	created, updated, started, finished int64

	id, job, group, lane, status, result, key, code, message, params, retryOf, tags []byte
}

// idKey is keyOf of the row's ID.
func (r *parsedRow) idKey() []byte { return idKey(r.id, sequenceOf(r.id)) }

// errPacked means that a row of the index is damaged.
var errPacked = errors.New("the history index is damaged: a row cannot be read")

func (p Packed) parse() (r parsedRow, err error) {
	if len(p) < 2 || p[0] != packedVersion {
		return r, errPacked
	}
	r.flags = p[1]
	rest := []byte(p[2:])
	for _, field := range []*uint64{&r.number, &r.earlierStop} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return r, errPacked
		}
		*field, rest = v, rest[n:]
	}
	for _, field := range []*int64{&r.bytes, &r.created, &r.updated, &r.started, &r.finished} {
		v, n := binary.Varint(rest)
		if n <= 0 {
			return r, errPacked
		}
		*field, rest = v, rest[n:]
	}
	for _, field := range []*[]byte{
		&r.id, &r.job, &r.group, &r.lane, &r.status, &r.result, &r.key, &r.code, &r.message, &r.params, &r.retryOf, &r.tags,
	} {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return r, errPacked
		}
		*field, rest = rest[n:n+int(size)], rest[n+int(size):]
	}
	return r, nil
}

// row copies the parsed row into a Row.
func (r *parsedRow) row() (Row, error) {
	id, err := statefs.ParseID(string(r.id))
	if err != nil {
		return Row{}, errPacked
	}
	out := Row{
		Number: r.number, ID: id, Job: string(r.job), Group: string(r.group), Lane: string(r.lane),
		Status: statefs.State(r.status),
		Result: statefs.Result(r.result), Created: fromNanos(r.created), Updated: fromNanos(r.updated),
		Started:  fromNanos(r.started),
		Finished: fromNanos(r.finished), Key: string(r.key), Code: string(r.code), Message: string(r.message),
		Params:    string(r.params),
		ParamsCut: r.flags&flagParamsCut != 0, Pinned: r.flags&flagPinned != 0, NeedsPerson: r.flags&flagNeedsPerson != 0,
		OptionalNeedsPerson: r.flags&flagOptionalNeedsPerson != 0,
		Bytes:               r.bytes, EarlierStop: r.earlierStop,
	}
	if len(r.retryOf) > 0 {
		if out.RetryOf, err = statefs.ParseID(string(r.retryOf)); err != nil {
			return Row{}, errPacked
		}
	}
	if len(r.tags) > 0 && json.Unmarshal(r.tags, &out.Tags) != nil {
		return Row{}, errPacked
	}
	return out, nil
}

// tagged reports whether the row has a tag. quoted is the tag as JSON.
func (r *parsedRow) tagged(tag string, quoted []byte) bool {
	switch {
	case !bytes.Contains(r.tags, quoted):
		return false
	case utf8.ValidString(tag) && tag != "" && tag[0] != ',' && tag[0] != ']' && bytes.IndexByte(r.tags, '\\') < 0:
		return true // without escapes, a match of quoted is one whole tag of the list
	}
	var tags []string
	if len(r.tags) == 0 || json.Unmarshal(r.tags, &tags) != nil {
		return false
	}
	return slices.Contains(tags, tag)
}
