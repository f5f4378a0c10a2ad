package history

import (
	"bytes"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// minDeletedIDRetention is the shortest time for which the ID of a deleted operation is remembered.
const minDeletedIDRetention = 7 * 24 * time.Hour

// SetDeletedIDRetention sets how long the index remembers the ID of a deleted operation. 7 days is
// the minimum and the default. It must be called before Run.
func (s *Store) SetDeletedIDRetention(age time.Duration) {
	s.deletedIDRetention = max(age, minDeletedIDRetention)
}

// Gone reports whether an operation without a record was deleted, by a person or by the retention.
// It also answers while the index is being built, from the IDs that were read from the old index.
func (s *Store) Gone(id statefs.ID) (gone bool, err error) {
	key := keyOf(id)
	err = s.view(func(x index) error {
		gone = x.gone.Get(key) != nil || x.id.Get(key) != nil
		return nil
	})
	return gone, err
}

// maxForgottenPerDelete is how many expired IDs one deletion forgets at most. More than one, so
// that the bucket does not grow; few, so that the first deletion after a long pause is not slow.
const maxForgottenPerDelete = 2

// rememberDeleted remembers the ID of a deleted operation for goneFor, and forgets expired IDs.
func (x index) rememberDeleted(id statefs.ID, now time.Time, goneFor time.Duration) error {
	for range maxForgottenPerDelete {
		first, _ := x.forget.Cursor().First()
		if first == nil || timeOf(first) > nanos(now) {
			break
		}
		first = bytes.Clone(first)
		if err := x.forget.Delete(first); err != nil {
			return err
		}
		if err := x.gone.Delete(first[8:]); err != nil {
			return err
		}
	}
	return x.remember(timeKey(nanos(now.Add(goneFor)), keyOf(id)))
}

// remember adds a deleted operation by its key of the bucket forget: the time until which it is
// remembered, then the key of its ID.
func (x index) remember(until []byte) error {
	if err := x.forget.Put(until, nil); err != nil {
		return err
	}
	return x.gone.Put(until[8:], until[:8])
}

// scheduleDeletion removes an operation from the index and records that its files must be deleted,
// so that a crash cannot keep them. The ID is remembered for goneFor.
func (x index) scheduleDeletion(id statefs.ID, now time.Time, goneFor time.Duration) error {
	if err := x.removeAll(id); err != nil {
		return err
	}
	if err := x.rememberDeleted(id, now, goneFor); err != nil {
		return err
	}
	return x.deleting.Put(keyOf(id), []byte(id.String()))
}

// salvage returns the keys of the bucket forget of an index that cannot be trusted, as far as they can
// be read. The rest of the index is rebuilt from the records, but deleted operations have none.
func (f *indexFile) salvage() (gone [][]byte) {
	if f.db == nil {
		return nil
	}
	var damaged error // a partial result is still useful
	defer recoverDamage(&damaged)()
	_ = f.db.View(func(tx *bolt.Tx) error {
		forget := indexOf(tx).forget
		if forget == nil {
			return nil
		}
		length := len(timeKey(0, idKey(nil, 0)))
		most := tx.Size() / int64(length) // pages that form a cycle have more
		cursor := forget.Cursor()
		for key, _ := cursor.First(); key != nil && most > 0; key, _ = cursor.Next() {
			if most--; len(key) == length {
				gone = append(gone, bytes.Clone(key))
			}
		}
		return nil
	})
	return gone
}
