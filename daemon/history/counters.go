package history

import (
	"bytes"
	"encoding/binary"
)

// counters counts the ended operations that have the same day (of their ID), status, job, group,
// lane and result. Sums over these six are exact, and a list skips the times in which nothing can
// match.
type counters struct {
	n     int64
	bytes int64
	// The earliest and latest times of the operations counted; after a removal they may be wider
	// than needed.
	minCreated, maxCreated int64
	minEnded               int64
}

// dimensions are the key of a count.
type dimensions struct{ day, status, job, group, lane, result []byte }

var separator = []byte{0}

func (d dimensions) key() []byte {
	return bytes.Join([][]byte{d.day, d.status, d.job, d.group, d.lane, d.result}, separator)
}

func parseDimensions(key []byte) (dimensions, bool) {
	parts := bytes.Split(key, separator)
	if len(parts) != 6 {
		return dimensions{}, false
	}
	return dimensions{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]}, true
}

func (c *counters) pack() []byte {
	fields := []int64{c.n, c.bytes, c.minCreated, c.maxCreated, c.minEnded}
	b, _ := binary.Append(nil, binary.BigEndian, fields) // numbers always encode
	return b
}

func parseCounters(data []byte) (c counters, ok bool) {
	if len(data) != 40 {
		return c, false
	}
	for i, field := range []*int64{&c.n, &c.bytes, &c.minCreated, &c.maxCreated, &c.minEnded} {
		*field = int64(binary.BigEndian.Uint64(data[8*i:]))
	}
	return c, true
}

// updateCounters adds a row to its count (by is 1) or removes it (by is -1).
func (x index) updateCounters(r *Row, by int64) error {
	key := dimensions{
		[]byte(r.ID.Day()), []byte(r.Status), clean(r.Job), clean(r.Group), clean(r.Lane), []byte(r.Result),
	}.key()
	created, ended := nanos(r.Created), nanos(r.Finished)
	c, ok := parseCounters(x.counts.Get(key))
	if !ok {
		c = counters{minCreated: created, maxCreated: created, minEnded: ended}
	}
	c.n += by
	c.bytes += by * r.Bytes
	if c.n <= 0 {
		return x.counts.Delete(key)
	}
	c.minCreated, c.maxCreated, c.minEnded = min(c.minCreated, created), max(c.maxCreated, created), min(c.minEnded, ended)
	return x.counts.Put(key, c.pack())
}

// clean replaces the separator in a text: a record written by another program may contain it.
func clean(text string) []byte { return bytes.ReplaceAll([]byte(text), separator, []byte{'?'}) }

// eachCounters calls fn for every count.
func (x index) eachCounters(fn func(dimensions, counters)) error {
	return x.counts.ForEach(func(key, value []byte) error {
		d, ok := parseDimensions(key)
		c, ok2 := parseCounters(value)
		if !ok || !ok2 {
			return errPacked
		}
		fn(d, c)
		return nil
	})
}
