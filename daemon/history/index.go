package history

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// The buckets of history.db; see doc.go.
var (
	bucketMeta     = []byte("meta")
	bucketRows     = []byte("rows")
	bucketID       = []byte("id")
	bucketCreated  = []byte("created")
	bucketUpdated  = []byte("updated")
	bucketCounts   = []byte("counts")
	bucketReferred = []byte("referred")
	bucketDeleting = []byte("doomed")
	bucketGone     = []byte("gone")
	bucketForget   = []byte("forget")
	bucketUnread   = []byte("unread")
	bucketTags     = []byte("tags")
	bucketGrams    = []byte("grams")

	buckets = [][]byte{
		bucketMeta, bucketRows, bucketID, bucketCreated, bucketUpdated, bucketCounts, bucketReferred, bucketDeleting,
		bucketUnread, bucketTags, bucketGrams,
		bucketGone, bucketForget,
	}
)

// index is one transaction on the index.
type index struct {
	rows, id, created, updated, counts, referred, deleting, unread, tags, grams, gone, forget *bolt.Bucket
}

func indexOf(tx *bolt.Tx) index {
	return index{
		rows: tx.Bucket(bucketRows), id: tx.Bucket(bucketID), created: tx.Bucket(bucketCreated),
		updated: tx.Bucket(bucketUpdated),
		counts:  tx.Bucket(bucketCounts), referred: tx.Bucket(bucketReferred), deleting: tx.Bucket(bucketDeleting),
		unread: tx.Bucket(bucketUnread),
		tags:   tx.Bucket(bucketTags), grams: tx.Bucket(bucketGrams),
		gone: tx.Bucket(bucketGone), forget: tx.Bucket(bucketForget),
	}
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
func (x index) put(r *Row) error {
	data := r.Pack()
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
	number := numberKey(r.Number)
	sameTexts := false
	if old := x.id.Get(key); old != nil {
		before := x.rows.Get(old)
		if bytes.Equal(before, data) {
			return nil
		}
		was, wasErr := Packed(before).parse()
		is, isErr := data.parse()
		sameTexts = wasErr == nil && isErr == nil && bytes.Equal(old, number) && is.sameTexts(&was)
		if err := x.remove(key, bytes.Clone(old)); err != nil {
			return err
		}
	}
	if !sameTexts {
		if err := x.unseal(r.Number); err != nil {
			return err
		}
	}
	if err := x.tag(r, key, number, true); err != nil {
		return err
	}
	for _, entry := range []struct {
		bucket     *bolt.Bucket
		key, value []byte
	}{
		{x.rows, number, data},
		{x.id, key, number},
		{x.created, timeKey(nanos(r.Created), key), number},
		{x.updated, timeKey(nanos(r.Updated), key), number},
	} {
		if err := entry.bucket.Put(entry.key, entry.value); err != nil {
			return err
		}
	}
	if !r.RetryOf.IsZero() {
		if err := x.referred.Put(append(keyOf(r.RetryOf), key...), []byte(r.ID.String())); err != nil {
			return err
		}
	}
	return x.updateCounters(r, 1)
}

// remove removes a row, but not the rows of earlier stops.
func (x index) remove(key, number []byte) error {
	r, err := x.row(number)
	if err != nil {
		return err
	}
	for _, entry := range []struct {
		bucket *bolt.Bucket
		key    []byte
	}{
		{x.rows, number},
		{x.id, key},
		{x.created, timeKey(nanos(r.Created), key)},
		{x.updated, timeKey(nanos(r.Updated), key)},
	} {
		if err := entry.bucket.Delete(entry.key); err != nil {
			return err
		}
	}
	if !r.RetryOf.IsZero() {
		if err := x.referred.Delete(append(keyOf(r.RetryOf), key...)); err != nil {
			return err
		}
	}
	if err := x.tag(&r, key, nil, false); err != nil {
		return err
	}
	return x.updateCounters(&r, -1)
}

// removeAll removes an operation with all its rows in the feed.
func (x index) removeAll(id statefs.ID) error {
	key := keyOf(id)
	number := bytes.Clone(x.id.Get(key))
	if number == nil {
		return nil
	}
	r, err := x.row(number)
	if err != nil {
		return err
	}
	if err := x.remove(key, number); err != nil {
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

func (x index) row(number []byte) (Row, error) {
	parsed, err := Packed(x.rows.Get(number)).parse()
	if err != nil {
		return Row{}, err
	}
	return parsed.row()
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

// last returns the highest number in the index.
func (x index) last() uint64 {
	key, _ := x.rows.Cursor().Last()
	return numberOf(key)
}
