package history

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"iter"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// index is one transaction on the index: the buckets of history.db, see doc.go.
type index struct {
	meta, rows, id, created, updated, counts, referred, deleting, unread, tags, grams, gone, forget *bolt.Bucket
}

// namedBucket is a field of an index with the name of its bucket.
type namedBucket struct {
	name  string
	field **bolt.Bucket
}

func (x *index) buckets() []namedBucket {
	return []namedBucket{
		{"meta", &x.meta},
		{"rows", &x.rows},
		{"id", &x.id},
		{"created", &x.created},
		{"updated", &x.updated},
		{"counts", &x.counts},
		{"referred", &x.referred},
		{"doomed", &x.deleting},
		{"unread", &x.unread},
		{"tags", &x.tags},
		{"grams", &x.grams},
		{"gone", &x.gone},
		{"forget", &x.forget},
	}
}

// indexOf returns the index of a transaction. The fields of missing buckets are nil.
func indexOf(tx *bolt.Tx) (x index) {
	for _, b := range x.buckets() {
		*b.field = tx.Bucket([]byte(b.name))
	}
	return x
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func numberOf(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// idKey sorts IDs by their numbers. The hash separates IDs from other storages that have the same
// number.
func idKey(id []byte, sequence uint64) []byte {
	hash := fnv.New64a()
	_, _ = hash.Write(id) // a hash does not fail
	return hash.Sum(binary.BigEndian.AppendUint64(nil, sequence))
}

func keyOf(id statefs.ID) []byte { return idKey([]byte(id.String()), id.Sequence()) }

// timeKey sorts by time, then by number of the operation.
func timeKey(at int64, id []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at)^1<<63), id...)
}

// timeOf is the reverse of timeKey.
func timeOf(key []byte) int64 {
	return int64(binary.BigEndian.Uint64(key) ^ 1<<63)
}

// put adds a row, and replaces an older row of the same operation.
func (x index) put(r *Row) error { return x.putPacked(r, r.Pack()) }

func (x index) putPacked(r *Row, data Packed) error {
	if r.NeedsPerson {
		if x.rows.Get(numberKey(r.Number)) != nil {
			return nil // it may refer to earlier stops that a rebuilt one lacks
		}
		return x.rows.Put(numberKey(r.Number), data)
	}
	key := keyOf(r.ID)
	if x.deleting.Get(key) != nil {
		return nil // its record was read just before it was deleted
	}
	sameTexts := false
	if old := x.id.Get(key); old != nil {
		before := Packed(x.rows.Get(old))
		if bytes.Equal(before, data) {
			return nil
		}
		was, err := before.Unpack()
		if err != nil {
			return err
		}
		sameTexts = was.Number == r.Number && was.Params == r.Params && was.Code == r.Code && was.Message == r.Message
		if err := x.remove(&was); err != nil {
			return err
		}
	}
	if !sameTexts {
		if err := x.unseal(r.Number); err != nil {
			return err
		}
	}
	for _, e := range x.entries(r, data) {
		if err := e.bucket.Put(e.key, e.value); err != nil {
			return err
		}
	}
	return x.updateCounters(r, 1)
}

// entry is a key of a bucket with its value.
type entry struct {
	bucket     *bolt.Bucket
	key, value []byte
}

// entries returns what the index has of a row, apart from counts and texts.
func (x index) entries(r *Row, data Packed) []entry {
	key, number := keyOf(r.ID), numberKey(r.Number)
	all := []entry{
		{x.rows, number, data},
		{x.id, key, number},
		{x.created, timeKey(nanos(r.Created), key), number},
		{x.updated, timeKey(nanos(r.Updated), key), number},
	}
	if !r.RetryOf.IsZero() {
		all = append(all, entry{x.referred, append(keyOf(r.RetryOf), key...), []byte(r.ID.String())})
	}
	for _, tag := range r.Tags {
		all = append(all, entry{x.tags, tagKey(tag, key), number})
	}
	return all
}

// remove removes a row, but not the rows of earlier stops.
func (x index) remove(r *Row) error {
	for _, e := range x.entries(r, nil) {
		if err := e.bucket.Delete(e.key); err != nil {
			return err
		}
	}
	return x.updateCounters(r, -1)
}

// removeAll removes an operation with all its rows in the feed.
func (x index) removeAll(id statefs.ID) error {
	r, there, err := x.find(id)
	if err != nil || !there {
		return err
	}
	if err := x.remove(&r); err != nil {
		return err
	}
	if err := x.dropSegment(r.Number); err != nil {
		return err
	}
	for earlier := r.EarlierStop; earlier != 0; {
		stop, err := x.row(numberKey(earlier))
		if err != nil {
			return nil //nolint:nilerr // an index that was rebuilt knows the last stop only
		}
		if err := x.rows.Delete(numberKey(earlier)); err != nil {
			return err
		}
		earlier = stop.EarlierStop
	}
	return nil
}

func (x index) row(number []byte) (Row, error) { return Packed(x.rows.Get(number)).Unpack() }

// has reports whether an operation with this key of its ID has ended.
func (x index) has(id []byte) bool { return x.id.Get(id) != nil }

// late returns those rows that the index does not have, by the keys of their IDs, and whether an operation has ended
// by the index or by one of them. A deleted operation is in neither.
func (x index) late(rows []*queuedRow) (late map[string]Packed, has func(id []byte) bool) {
	late = make(map[string]Packed)
	for _, r := range rows {
		if key := keyOf(r.ID); !x.has(key) && x.gone.Get(key) == nil {
			late[string(key)] = r.packed
		}
	}
	return late, func(id []byte) bool { return x.has(id) || late[string(id)] != nil }
}

// find returns the row of an ended operation, and false when the index has none.
func (x index) find(id statefs.ID) (Row, bool, error) {
	number := x.id.Get(keyOf(id))
	if number == nil {
		return Row{}, false, nil
	}
	r, err := x.row(number)
	return r, err == nil, err
}

// withPrefix ranges over the keys of a bucket that begin with prefix, and their values.
func withPrefix(bucket *bolt.Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		cursor := bucket.Cursor()
		key, value := cursor.Seek(prefix)
		for key != nil && bytes.HasPrefix(key, prefix) && yield(key, value) {
			key, value = cursor.Next()
		}
	}
}

// last returns the highest number in the index.
func (x index) last() uint64 {
	key, _ := x.rows.Cursor().Last()
	return numberOf(key)
}
