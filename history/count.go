package history

import (
	"bytes"
	"encoding/binary"
)

// A count is how many ended operations have the same day (of their ID), status, job, group, lane and result. Every sum over these
// six is exact by adding counts up, and a list passes over the times in which nothing can match.
type count struct {
	n     int64
	bytes int64
	// The earliest and latest times of those counted; where one was removed they may be wider than needed.
	minCreated, maxCreated int64
	minEnded               int64
}

// dims are what a count is kept for.
type dims struct{ day, status, job, group, lane, result []byte }

var separator = []byte{0}

func (d dims) key() []byte {
	return bytes.Join([][]byte{d.day, d.status, d.job, d.group, d.lane, d.result}, separator)
}

func parseDims(key []byte) (dims, bool) {
	parts := bytes.Split(key, separator)
	if len(parts) != 6 {
		return dims{}, false
	}
	return dims{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]}, true
}

func (c *count) pack() []byte {
	var b []byte
	for _, v := range []int64{c.n, c.bytes, c.minCreated, c.maxCreated, c.minEnded} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func parseCount(data []byte) (c count, ok bool) {
	if len(data) != 40 {
		return c, false
	}
	for i, field := range []*int64{&c.n, &c.bytes, &c.minCreated, &c.maxCreated, &c.minEnded} {
		*field = int64(binary.BigEndian.Uint64(data[8*i:]))
	}
	return c, true
}

// count adds a row to its count, or takes it away.
func (x index) count(r *Row, by int64) error {
	key := dims{
		[]byte(r.ID.Day()), []byte(r.Status), clean(r.Job), clean(r.Group), clean(r.Lane), []byte(r.Result),
	}.key()
	created, ended := nanos(r.Created), nanos(r.Finished)
	c, ok := parseCount(x.counts.Get(key))
	if !ok {
		c = count{minCreated: created, maxCreated: created, minEnded: ended}
	}
	c.n += by
	c.bytes += by * r.Bytes
	if c.n <= 0 {
		return x.counts.Delete(key)
	}
	c.minCreated, c.maxCreated, c.minEnded = min(c.minCreated, created), max(c.maxCreated, created), min(c.minEnded, ended)
	return x.counts.Put(key, c.pack())
}

// clean keeps a text of a record that somebody else wrote from holding the separator.
func clean(text string) []byte { return bytes.ReplaceAll([]byte(text), separator, []byte{'?'}) }

// eachCount calls fn for every count.
func (x index) eachCount(fn func(dims, count)) error {
	return x.counts.ForEach(func(key, value []byte) error {
		d, ok := parseDims(key)
		c, ok2 := parseCount(value)
		if !ok || !ok2 {
			return errPacked
		}
		fn(d, c)
		return nil
	})
}
