package history

import (
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// TestDeletedIDsAreRemembered deletes one operation, then others over time, and checks how long the
// index remembers the first.
func TestDeletedIDsAreRemembered(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, test := range []struct {
		name           string
		age            time.Duration
		kept, forgot   time.Duration
		restart, prune bool
	}{
		{name: "at least 7 days", age: day, kept: 7*day - time.Hour, forgot: 7*day + time.Hour},
		{name: "as long as an idempotency key", age: 20 * day, kept: 20*day - time.Hour, forgot: 20*day + time.Hour},
		{name: "after a restart", age: day, kept: 7*day - time.Hour, forgot: 7*day + time.Hour, restart: true},
		{name: "pruned", age: day, kept: 7*day - time.Hour, forgot: 7*day + time.Hour, prune: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.stop()
			r.openWith(func(s *Store) { s.SetDeletedIDRetention(test.age) })
			remove := func() statefs.ID {
				t.Helper()
				id := r.end("a", statefs.Completed).ID
				if test.prune {
					pruned, err := r.Prune(t.Context(), Retention{Age: time.Nanosecond}, always(Guards{}), r.clock.Add(time.Second))
					must(t, err)
					if len(pruned) != 1 || pruned[0].ID != id {
						t.Fatalf("pruned: %v", pruned)
					}
					return id
				}
				must(t, r.Delete(t.Context(), id, Guards{}, r.clock))
				return id
			}
			began := r.clock
			first := remove()
			if test.restart {
				r.reopen()
			}
			r.clock = began.Add(test.kept)
			remove()
			r.wantGone(first, true)
			r.clock = began.Add(test.forgot)
			second := remove()
			r.wantGone(first, false)
			r.wantGone(second, true)
		})
	}
}

// TestDeletedIDsAreLostWithTheIndex checks Gone for a deleted operation and for one whose record a
// person removed, and again after the index file was removed.
func TestDeletedIDsAreLostWithTheIndex(t *testing.T) {
	t.Parallel()
	r := setup(t)
	deleted, lost, kept := r.end("a", statefs.Completed).ID, r.end("b", statefs.Completed).ID,
		r.end("c", statefs.Failed).ID
	must(t, r.Delete(t.Context(), deleted, Guards{}, r.clock))
	must(t, os.Remove(r.tree.RecordPath(lost)))
	r.wantGone(deleted, true)
	r.wantGone(lost, true)
	never, err := statefs.MakeID("g-other", r.clock, deleted.PID(), deleted.Sequence())
	must(t, err)
	r.wantGone(never, false)
	r.stop()
	must(t, os.Remove(r.path))
	r.open()
	r.wantGone(deleted, false)
	if jobs, _ := r.list(Query{}); len(jobs) != 1 {
		t.Errorf("the history has %v", jobs)
	}
	if _, err := r.tree.ReadRecord(kept); err != nil {
		t.Error(err)
	}
}

// TestGoneOutlivesARebuild rebuilds the index from the records because it cannot be trusted, or is
// damaged.
func TestGoneOutlivesARebuild(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*bolt.Tx) error{
		"the machine went down": func(tx *bolt.Tx) error {
			return indexOf(tx).meta.Put(keyState, []byte(`{"version":3,"boot":"another","complete":true}`))
		},
		"it was not finished": func(tx *bolt.Tx) error {
			return indexOf(tx).meta.Put(keyState, []byte(`{"version":3}`))
		},
		"its state is damaged": func(tx *bolt.Tx) error { return indexOf(tx).meta.Put(keyState, []byte(`{`)) },
		"a part of it is gone": func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("rows")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			deleted, kept := r.end("a", statefs.Completed).ID, r.end("b", statefs.Completed).ID
			must(t, r.Delete(t.Context(), deleted, Guards{}, r.clock))
			r.stop()
			db, err := bolt.Open(r.path, 0o640, nil)
			must(t, err)
			must(t, db.Update(spoil))
			must(t, db.Close())
			r.open()
			if jobs, _ := r.list(Query{}); len(jobs) != 1 {
				t.Errorf("the history has %v", jobs)
			}
			r.wantGone(deleted, true)
			r.clock = r.clock.Add(8 * 24 * time.Hour)
			must(t, r.Delete(t.Context(), kept, Guards{}, r.clock))
			r.wantGone(deleted, false)
			r.wantGone(kept, true)
		})
	}
}

func (r *rig) wantGone(id statefs.ID, want bool) {
	r.t.Helper()
	if gone, err := r.Gone(id); err != nil || gone != want {
		r.t.Errorf("%s is gone: %v, %v; want %v", id, gone, err, want)
	}
}
