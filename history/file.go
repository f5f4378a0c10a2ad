package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// fileVersion is the format of the index. One with another version is made anew.
const fileVersion = 2

// fileState stands in the index and says whether it can be trusted.
type fileState struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"`
	// Inode is the file's own: a copy, which may have been made while somebody wrote, has another one.
	Inode uint64 `json:"inode"`
	// Clean says that the file was synced and not written since.
	Clean bool `json:"clean"`
	// Complete says that every record has been read.
	Complete bool `json:"complete"`
}

var keyState = []byte("state")

// damage is a reason to make the index anew.
type damage struct{ cause any }

func (e *damage) Error() string { return fmt.Sprintf("%v", e.cause) }

func isDamage(err error) bool {
	_, found := errors.AsType[*damage](err)
	return found || errors.Is(err, errPacked)
}

// guard turns the panics of a damaged file into an error: bolt panics at a page that makes no sense, and a page that is missing in
// the file is a fault of the processor.
func guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if cause := recover(); cause != nil {
			*err = &damage{cause}
		}
	}
}

// openFile opens the index and returns the highest number in it. An index that cannot be trusted is emptied and has to be built.
func (s *Store) openFile() (last uint64, err error) {
	if info, err := os.Lstat(s.path); err == nil && !info.Mode().IsRegular() {
		if err := s.owner.SetAside(FileName); err != nil {
			return 0, fmt.Errorf("open the index of the history: %s is a %s and cannot be moved: %w; move it away", s.path, info.Mode().Type(), err)
		}
	}
	last, reason := s.openTrusted()
	if reason == nil {
		return last, nil
	}
	if s.db != nil && !isDamage(reason) { // see startOver
		_ = s.db.Close() // it goes
	}
	if !errors.Is(reason, fs.ErrNotExist) {
		s.log.Warn("the index of the history is built again", "file", s.path, "reason", reason)
	}
	return 0, s.newFile(isDamage(reason))
}

// openTrusted opens the index. The error says why it cannot be used.
func (s *Store) openTrusted() (last uint64, err error) {
	info, err := os.Lstat(s.path)
	if err != nil {
		return 0, err
	}
	defer guard(&err)()
	if s.db, err = bolt.Open(s.path, 0o640, boltOptions()); err != nil {
		return 0, &damage{err}
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return &damage{errors.New("it has been cut off")}
		}
		for _, name := range buckets {
			if tx.Bucket(name) == nil {
				return &damage{fmt.Errorf("it has no bucket %q", name)}
			}
		}
		var state fileState
		if err := json.Unmarshal(tx.Bucket(bucketMeta).Get(keyState), &state); err != nil {
			return &damage{err}
		}
		s.clean = state.Clean
		last = indexOf(tx).last()
		return state.distrust(inode(info))
	})
	if err == nil && last > 0 {
		if _, there, listErr := s.owner.EverLive(); listErr != nil || !there {
			err = errors.New("the list of live operations is gone: what ended last is not known")
		}
	}
	return last, err
}

// distrust returns the reason for which the file may lack something.
func (f *fileState) distrust(ino uint64) error {
	switch {
	case f.Version != fileVersion:
		return fmt.Errorf("it has format %d, this version writes %d", f.Version, fileVersion)
	case !f.Complete:
		return errors.New("it was not finished")
	case f.Inode != ino:
		return errors.New("it is a copy, which may have been made while it was written")
	case !f.Clean && (f.Boot == "" || f.Boot != statefs.ThisMachine().Boot):
		return errors.New("the machine went down while it was in use")
	}
	return nil
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

func boltOptions() *bolt.Options {
	return &bolt.Options{Timeout: 5 * time.Second, NoSync: true, FreelistType: bolt.FreelistMapType}
}

// newFile makes an empty index, which has to be built. A damaged one is kept beside it.
func (s *Store) newFile(keep bool) error {
	var err error
	if keep {
		err = s.owner.SetAside(FileName)
	} else {
		err = os.Remove(s.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make the index of the history anew: %w", err)
	}
	db, err := bolt.Open(s.path, 0o640, boltOptions())
	if err != nil {
		return fmt.Errorf("make the index of the history %s: %w", s.path, err)
	}
	s.db, s.clean = db, false
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return s.putState(tx, fileState{})
	})
	if err != nil {
		return errors.Join(fmt.Errorf("make the index of the history %s: %w", s.path, err), db.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.building {
		s.building = true
		if s.caughtUp { // otherwise nobody was told yet
			s.built = make(chan struct{})
		}
	}
	s.rebuild = true
	s.ring()
	return nil
}

// startOver sets a damaged index aside. It is not closed: the transaction that met the damage may hold locks of the library for
// ever. So each damage costs one descriptor.
func (s *Store) startOver() error {
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	return s.newFile(true)
}

func (s *Store) putState(tx *bolt.Tx, state fileState) error {
	info, err := os.Lstat(s.path)
	if err != nil {
		return err
	}
	state.Version, state.Boot, state.Inode = fileVersion, statefs.ThisMachine().Boot, inode(info)
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketMeta).Put(keyState, data)
}

// changeState changes the state in a transaction that is synced: all that was written before is durable too.
func (s *Store) changeState(change func(*fileState)) error {
	s.db.NoSync = false
	defer func() { s.db.NoSync = true }()
	return s.db.Update(func(tx *bolt.Tx) error {
		var state fileState
		if err := json.Unmarshal(tx.Bucket(bucketMeta).Get(keyState), &state); err != nil {
			return &damage{err}
		}
		change(&state)
		return s.putState(tx, state)
	})
}

// mode is what a transaction leaves the file as: durable, and holding every record.
type mode struct{ synced, complete bool }

// update makes a transaction; fn is nil when there is nothing to write. Before the first transaction after a sync the file says
// that it is not whole any more.
func (s *Store) update(mode mode, fn func(index) error) (err error) {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	defer guard(&err)()
	if fn != nil {
		if s.clean {
			if err := s.changeState(func(f *fileState) { f.Clean = false }); err != nil {
				return err
			}
			s.clean = false
		}
		if err := s.db.Update(func(tx *bolt.Tx) error { return fn(indexOf(tx)) }); err != nil {
			return err
		}
	}
	if !mode.synced || s.clean && !mode.complete {
		return nil
	}
	if err := s.changeState(func(f *fileState) { f.Clean, f.Complete = true, f.Complete || mode.complete }); err != nil {
		return err
	}
	s.clean = true
	return nil
}

// view reads in a transaction. When the file turns out to be damaged the writer makes it anew.
func (s *Store) view(fn func(index) error) error {
	err := s.read(fn)
	if isDamage(err) {
		found := err
		s.enqueue(change{apply: func(index) error {
			reason := found
			found = nil
			return reason
		}})
		return fmt.Errorf("%w (%w)", ErrNotReady, err)
	}
	return err
}

func (s *Store) read(fn func(index) error) (err error) {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	defer guard(&err)()
	return s.db.View(func(tx *bolt.Tx) error { return fn(indexOf(tx)) })
}
