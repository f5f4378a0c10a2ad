package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// fileVersion is the format of the index. A file of another version is rebuilt.
const fileVersion = 3

// indexFile is the file of the index: it decides whether an existing file can be trusted, and replaces a damaged file
// while readers and a writer use it.
type indexFile struct {
	owner *statefs.Owner
	log   *slog.Logger
	path  string

	dbMu sync.RWMutex // held for writing while db is replaced
	db   *bolt.DB

	clean    bool   // the file is marked clean; used only by Run once that is called
	sealed   uint64 // the texts of all lower numbers are indexed; used only by Run
	position        // in the journal

	// behind means that Open has to write the file, and missed is what it lacks.
	behind bool
	missed []statefs.Committed
}

// fileState is stored in the index and decides whether it can be trusted.
type fileState struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"`
	// Inode is that of the file itself: a copy, which may have been made during a write, has
	// another one.
	Inode uint64 `json:"inode"`
	// Clean means that the file was synced and not written since.
	Clean bool `json:"clean"`
	// Complete means that every record has been read.
	Complete bool `json:"complete"`
	// Applied is the number of a line of the journal of the storage with the mark Storage: what was committed behind it
	// may be missing. It is nil if the index was written without the journal.
	Applied *uint64 `json:"applied,omitempty"`
	Storage string  `json:"storage,omitempty"`
	// Synced means that each transaction since the last clean state was synced: the file survives a power cut.
	Synced bool `json:"synced,omitempty"`
}

var keyState = []byte("state")

// damage is an error after which the index is rebuilt.
type damage struct{ cause any }

func (e *damage) Error() string { return fmt.Sprintf("%v", e.cause) }

func isDamage(err error) bool {
	_, found := errors.AsType[*damage](err)
	return found || errors.Is(err, errPacked)
}

// recoverDamage turns the panics caused by a damaged file into an error: bolt panics at an invalid
// page, and access to a page beyond the end of the file is a memory fault.
func recoverDamage(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if cause := recover(); cause != nil {
			*err = &damage{cause}
		}
	}
}

// openFile opens the index and returns the highest number in it. An index that cannot be trusted is
// replaced by an empty one, and emptied is called.
func (f *indexFile) openFile(emptied func()) (last uint64, err error) {
	if info, err := os.Lstat(f.path); err == nil && !info.Mode().IsRegular() {
		if err := f.owner.RenameDamaged(FileName); err != nil {
			return 0, fmt.Errorf("open the history index: %s is a %s and cannot be moved: %w; move it away", f.path,
				info.Mode().Type(), err)
		}
	}
	last, reason := f.openTrusted()
	if reason == nil {
		return last, nil
	}
	f.position, f.behind = position{}, false
	gone := f.salvage()
	if f.db != nil && !isDamage(reason) { // it is removed below
		_ = f.db.Close() // it goes
	}
	if !errors.Is(reason, fs.ErrNotExist) {
		f.log.Warn("rebuilding the history index", "file", f.path, "reason", reason)
	}
	return 0, f.newFile(isDamage(reason), gone, emptied)
}

// openDB opens the index file with the mode of all files of a storage, whatever the umask is.
func (f *indexFile) openDB() (*bolt.DB, error) {
	created, err := files.OpenFile(f.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := created.Close(); err != nil {
		return nil, err
	}
	return bolt.Open(f.path, 0o640, &bolt.Options{
		Timeout: 5 * time.Second, NoSync: true, FreelistType: bolt.FreelistMapType,
	})
}

// openTrusted opens the index. The error is the reason why it cannot be used.
func (f *indexFile) openTrusted() (last uint64, err error) {
	info, err := os.Lstat(f.path)
	if err != nil {
		return 0, err
	}
	defer recoverDamage(&err)()
	if f.db, err = f.openDB(); err != nil {
		return 0, &damage{err}
	}
	err = f.db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return &damage{errors.New("it is truncated")}
		}
		x := indexOf(tx)
		for _, b := range x.buckets() {
			if *b.field == nil {
				return &damage{fmt.Errorf("it has no bucket %q", b.name)}
			}
		}
		state, err := x.state()
		if err != nil {
			return err
		}
		last = x.last()
		if err := state.untrustedReason(inode(info)); err != nil {
			return err
		}
		return f.trust(&state)
	})
	if err == nil && last > 0 && !f.follows { // otherwise the journal tells what ended last
		if _, there, listErr := f.owner.Live.Listed(); listErr != nil || !there {
			err = errors.New("the list of live operations is gone: what ended last is not known")
		}
	}
	return last, err
}

// untrustedReason returns why the file may be incomplete, nil if it is not.
func (f *fileState) untrustedReason(ino uint64) error {
	switch {
	case f.Version != fileVersion:
		return fmt.Errorf("it has format %d, this version writes %d", f.Version, fileVersion)
	case !f.Complete:
		return errors.New("it was not finished")
	case f.Inode != ino:
		return errors.New("it is a copy, which may have been made while it was written")
	case !f.Clean && !f.Synced && (f.Boot == "" || f.Boot != machine.This().Boot):
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

// newFile makes an empty index with the deleted IDs gone (keys of
// the bucket forget). If keep is set, the old file is kept under another name.
func (f *indexFile) newFile(keep bool, gone [][]byte, emptied func()) error {
	var err error
	if keep {
		err = f.owner.RenameDamaged(FileName)
	} else {
		err = os.Remove(f.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rebuild the history index: %w", err)
	}
	db, err := f.openDB()
	if err != nil {
		return fmt.Errorf("make the history index %s: %w", f.path, err)
	}
	f.db, f.clean, f.complete, f.follows = db, false, false, false
	err = db.Update(func(tx *bolt.Tx) error {
		for _, b := range new(index).buckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(b.name)); err != nil {
				return err
			}
		}
		x := indexOf(tx)
		for _, until := range gone {
			if err := x.remember(until); err != nil {
				return err
			}
		}
		return f.putState(x, fileState{})
	})
	if err != nil {
		return errors.Join(fmt.Errorf("make the history index %s: %w", f.path, err), db.Close())
	}
	f.sealed = 0
	emptied()
	return nil
}

// recreate replaces a damaged index. The old one is not closed: the transaction that met the damage
// may hold locks of the library forever. So each damage leaks one descriptor.
func (f *indexFile) recreate(emptied func()) error {
	f.dbMu.Lock()
	defer f.dbMu.Unlock()
	return f.newFile(true, nil, emptied) // no deleted IDs are read from it, for the same reason
}

// state returns the state that the index stores.
func (x index) state() (state fileState, err error) {
	if err := json.Unmarshal(x.meta.Get(keyState), &state); err != nil {
		return state, &damage{err}
	}
	return state, nil
}

func (f *indexFile) putState(x index, state fileState) error {
	info, err := os.Lstat(f.path)
	if err != nil {
		return err
	}
	state.Version, state.Boot, state.Inode = fileVersion, machine.This().Boot, inode(info)
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return x.meta.Put(keyState, data)
}

func (f *indexFile) changeState(x index, change func(*fileState)) error {
	state, err := x.state()
	if err != nil {
		return err
	}
	change(&state)
	return f.putState(x, state)
}

// setClean marks the file as clean or not, in a synced transaction, which makes everything written before durable too.
// upTo is the line of the journal up to which a clean file is true; nil if that is not in use.
func (f *indexFile) setClean(clean bool, upTo *uint64) error {
	f.db.NoSync = false
	defer func() { f.db.NoSync = true }()
	err := f.db.Update(func(tx *bolt.Tx) error {
		return f.changeState(indexOf(tx), func(s *fileState) {
			s.Clean, s.Synced, s.Applied, s.Storage = clean, false, nil, ""
			if clean && s.Complete && upTo != nil {
				s.Applied, s.Storage = upTo, f.owner.Journal.Storage()
			}
		})
	})
	if err == nil {
		f.clean, f.follows = clean, false
	}
	return err
}

// update makes the changes of work in one transaction, and the whole file durable if durable is set. Before the first
// write after that, it marks the file as not clean. See setClean about upTo.
func (f *indexFile) update(durable bool, upTo *uint64, work []func(index) error) (err error) {
	f.dbMu.RLock()
	defer f.dbMu.RUnlock()
	defer recoverDamage(&err)()
	if len(work) > 0 {
		if f.clean || f.follows {
			if err := f.setClean(false, nil); err != nil {
				return err
			}
		}
		if err := f.db.Update(func(tx *bolt.Tx) error { return applyAll(indexOf(tx), work) }); err != nil {
			return err
		}
	}
	if !durable || f.clean {
		return nil
	}
	return f.setClean(true, upTo)
}

func applyAll(x index, work []func(index) error) error {
	for _, apply := range work {
		if err := apply(x); err != nil {
			return err
		}
	}
	return nil
}

// view reads in a transaction. If the file turns out to be damaged, it makes the writer rebuild it.
func (w *writer) view(fn func(index) error) error {
	w.dbMu.RLock()
	seen := w.db
	w.dbMu.RUnlock()
	err := w.read(fn)
	if found := err; isDamage(found) {
		w.enqueue(change{apply: func(index) error {
			if w.db != seen {
				return nil // it has been replaced
			}
			return found
		}})
		return fmt.Errorf("%w (%w)", ErrNotReady, err)
	}
	return err
}

func (f *indexFile) read(fn func(index) error) (err error) {
	f.dbMu.RLock()
	defer f.dbMu.RUnlock()
	defer recoverDamage(&err)()
	return f.db.View(func(tx *bolt.Tx) error { return fn(indexOf(tx)) })
}
