package statefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

const (
	storageFile    = "storage.json"
	storageVersion = 1
	journalLayout  = JournalLayout
	// sequenceBlock is how many numbers are reserved at once: one synced write per block, and at
	// most one block lost with a daemon that dies.
	sequenceBlock = 1000
)

// JournalLayout is the version in storage.json while the journal has changes that the files may lack: older versions
// must not take such a storage over.
const JournalLayout = 2

// storageInfo is the content of storage.json.
type storageInfo struct {
	// Version is the layout of the storage directory.
	Version int `json:"version"`
	// NextSequence is the first unreserved operation number.
	NextSequence uint64 `json:"next_sequence"`
	// Mark identifies the storage, see Owner.Mark. The first daemon creates it.
	Mark string `json:"mark,omitempty"`
	// NextFinished is the first unreserved end number, see Numbers.ReserveEnds.
	NextFinished uint64 `json:"next_finished,omitempty"`
	// NextEvent is the first unreserved event number, see Numbers.ReserveEvents. EventsComplete means
	// that it is also the first unused one.
	NextEvent      uint64 `json:"next_event,omitempty"`
	EventsComplete bool   `json:"events_whole,omitempty"`
	// LSN is the number of a line of the journal: with journalLayout the first of this use, otherwise the last. The files
	// have everything up to it.
	LSN uint64 `json:"lsn,omitempty"`
}

// maxTimeNumber bounds an end number derived from the time of a file, which can be arbitrary. It
// corresponds to the year 2112 and stays well below the largest integer that a floating-point
// number holds exactly.
const maxTimeNumber = 1 << 52

// maxSequence is the last number that an ID can hold.
const maxSequence = 1e15 - 1

// ErrBadCounter is wrapped if no ID can have the next number in storage.json. The
// numbers of pruned operations are stored nowhere else, so a person must decide how to continue.
var ErrBadCounter = errors.New("no operation can have this number")

// Numbers gives out the numbers of operations, ends and events, each of them once. They come only from counters in
// storage.json, which it keeps: the clock and the process ID both repeat.
type Numbers struct {
	*storage
	live      *LiveList
	mu        sync.Mutex // guards next and end
	next, end uint64     // the reserved numbers of operations
}

// take returns a number that this storage has never given out before.
func (n *Numbers) take() (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.end {
		var start uint64
		err := n.changeStorage(func(info *storageInfo) error {
			if start = info.NextSequence; start > maxSequence-sequenceBlock {
				return n.badCounter(strconv.FormatUint(start, 10))
			}
			info.NextSequence += sequenceBlock
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("reserve operation numbers: %w", err)
		}
		n.next, n.end = start, start+sequenceBlock
	}
	n.next++
	return n.next - 1, nil
}

// changeStorage changes storage.json. The lock on the directory keeps two processes from reserving
// the same block. The block is on disk before any of its numbers is used, whatever the durability:
// a number must not repeat, even after a power cut.
func (n *Numbers) changeStorage(change func(*storageInfo) error) (err error) {
	dir, err := os.Open(n.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := files.Flock(dir, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", n.dir, err)
	}
	info, err := n.storageInfo()
	if err != nil {
		return err
	}
	if err := change(&info); err != nil {
		return err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if err := n.files.Replace(storageFile, append(data, '\n'), true); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return &files.SyncError{Path: n.dir, Err: err}
	}
	return nil
}

// checkLayout refuses a storage with a newer layout, also to clients that only read or request.
func (s *storage) checkLayout() error {
	data, err := s.readRegular(storageFile, 1<<16)
	var info storageInfo
	if err != nil || json.Unmarshal(data, &info) != nil || info.Version <= journalLayout {
		return nil //nolint:nilerr // a storage without it, or with a damaged one, is repaired when numbers are needed
	}
	return fmt.Errorf("%w (layout %d, this one knows %d); start the newer version", ErrNewerVersion,
		info.Version, journalLayout)
}

// needsJournal reports whether the journal has changes that the files of operations may lack.
func (s *storage) needsJournal() bool {
	info, _, err := s.readStorage()
	return err == nil && info.Version == journalLayout
}

// storageInfo reads storage.json. If it is missing or damaged, the counter continues after the
// highest number in any file name of the storage, which is slow to find.
func (n *Numbers) storageInfo() (storageInfo, error) {
	info, whole, err := n.readStorage()
	if err != nil || whole {
		return info, err
	}
	highest, newest, err := n.highestSequence()
	if highest > 0 {
		// Another process may hold a block whose numbers are in no file yet.
		highest += sequenceBlock
	}
	lost := storageInfo{Version: storageVersion, NextSequence: highest + 1, Mark: info.Mark}
	if n.commits.log.Load() != nil {
		lost.Version, lost.LSN = journalLayout, n.commits.opened
	}
	if highest > 0 {
		// The number of ends is unknown without reading every record. There were fewer ends than
		// microseconds, so the time in microseconds is higher than the last number, and still exact
		// in a floating-point number. A clock that was set back may be behind the last end, but the
		// modification time of that record is not.
		if now := n.options.Now(); newest.Before(now) {
			newest = now
		}
		lost.NextFinished = uint64(min(max(newest.UnixMicro(), 1), maxTimeNumber))
		lost.NextEvent = lost.NextFinished // there were fewer events than microseconds, too
	}
	return lost, err
}

// readStorage reads storage.json; whole is false if it is missing or damaged, and info then holds
// the readable part.
func (s *storage) readStorage() (info storageInfo, whole bool, err error) {
	data, err := s.readRegular(storageFile, 1<<16)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrIrregular) {
		return info, false, nil
	}
	if err != nil {
		return info, false, err
	}
	err = json.Unmarshal(data, &info)
	if info.Version > journalLayout {
		return info, false, fmt.Errorf("storage %s: %w (layout %d, this one knows %d); start the newer version", s.dir,
			ErrNewerVersion, info.Version, journalLayout)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field == "next_sequence" {
		return info, false, s.badCounter("a " + wrong.Value)
	}
	if info.NextSequence > maxSequence {
		return info, false, s.badCounter(strconv.FormatUint(info.NextSequence, 10))
	}
	return info, err == nil && info.Version > 0 && info.NextSequence > 0, nil
}

func (s *storage) badCounter(found string) error {
	return fmt.Errorf("%s: next_sequence is %s: %w: write one below %d that is higher than that of every operation, or remove the member, and it is found from the files that are left",
		filepath.Join(s.dir, storageFile), found, ErrBadCounter, uint64(maxSequence-sequenceBlock))
}

// highestSequence returns the highest operation number in any file name, and the modification time
// of the newest such file.
func (n *Numbers) highestSequence() (highest uint64, newest time.Time, err error) {
	// Ended operations that were pruned are in the list only.
	n.live.flush()
	if err := n.live.scanIDs(func(id ID, _ bool) { highest = max(highest, id.Sequence()) }); err != nil &&
		!errors.Is(err, files.ErrIrregular) {
		return 0, newest, fmt.Errorf("find the highest operation number: %w", err)
	}
	err = fs.WalkDir(n.root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed during the walk
		}
		if err != nil {
			return fmt.Errorf("find the highest operation number: %w", err)
		}
		name := entry.Name()
		if strings.HasPrefix(path, corruptDir+"/") {
			_, name, _ = strings.Cut(name, "_") // the time of its move
		}
		head, _, _ := strings.Cut(name, ".")
		if id, err := ParseID(head); err == nil {
			highest = max(highest, id.Sequence())
			if info, err := entry.Info(); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
			if entry.IsDir() {
				return fs.SkipDir // artifacts contain no IDs of this storage
			}
		}
		return nil
	})
	return highest, newest, err
}

// reserveEvents is how many event numbers are reserved at once. An operation has several events, so
// the one synced write per block serves some ten thousand operations.
const reserveEvents = 100_000

// EventsDir returns the folder of the event log. The code that writes the log creates it.
func (s *storage) EventsDir() string { return filepath.Join(s.dir, eventsDir) }

// reserveEnds is how many end numbers are reserved at once.
const reserveEnds = 1000

// ReserveEnds reserves a block of end numbers that were never given out before and never will be
// again, even after a crash. least is a lower bound for the first. It returns the first number and
// the one after the last. The block is on disk when it returns, whatever the durability.
func (n *Numbers) ReserveEnds(least uint64) (first, end uint64, err error) {
	err = n.changeStorage(func(info *storageInfo) error {
		first = max(info.NextFinished, least, 1)
		end = first + reserveEnds
		info.NextFinished = end
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("reserve numbers of ends: %w", err)
	}
	return first, end, nil
}

// NextEnd returns the first unreserved end number. It reserves nothing.
func (n *Numbers) NextEnd() (uint64, error) {
	info, err := n.storageInfo()
	return max(info.NextFinished, 1), err
}

// ReserveEvents reserves a block of event numbers that were never given out before and never will
// be again, even after a crash. least is a lower bound for the first. It returns the first number
// and the one after the last. whole reports that CloseEvents closed the log after the previous
// reservation, so that first directly follows the last event. The block is on disk when it returns,
// whatever the durability. On a full disk nothing is reserved: the error comes with first, which a
// later call would reserve, and with end equal to it.
func (n *Numbers) ReserveEvents(least uint64) (first, end uint64, whole bool, err error) {
	err = n.changeStorage(func(info *storageInfo) error {
		whole = info.EventsComplete || info.NextEvent == 0
		first = max(info.NextEvent, least, 1)
		end = first + reserveEvents
		info.NextEvent, info.EventsComplete = end, false
		return nil
	})
	if err != nil {
		return first, first, whole, fmt.Errorf("reserve numbers of events: %w", err)
	}
	return first, end, whole, nil
}

// CloseEvents records that the event log is complete and on disk, and that next is the first unused
// number.
func (n *Numbers) CloseEvents(next uint64) error {
	err := n.changeStorage(func(info *storageInfo) error {
		info.NextEvent, info.EventsComplete = next, true
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the last event: %w", err)
	}
	return nil
}
