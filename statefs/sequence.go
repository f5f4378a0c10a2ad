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
)

const (
	storageFile    = "storage.json"
	storageVersion = 1
	// sequenceBlock is how many numbers are reserved at once: one synced write for so many operations, and at most so many
	// numbers lost with a daemon that dies.
	sequenceBlock = 1000
)

// storageInfo is storage.json.
type storageInfo struct {
	// Version is the layout of the storage directory.
	Version int `json:"version"`
	// NextSequence is the first number that nobody has reserved.
	NextSequence uint64 `json:"next_sequence"`
	// Mark tells the storage from all others, see Owner.Mark. It is made by the first daemon.
	Mark string `json:"mark,omitempty"`
	// NextFinished is the first number of an end that nobody has reserved, see Owner.ReserveEnds.
	NextFinished uint64 `json:"next_finished,omitempty"`
	// NextEvent is the first number of an event that nobody has reserved, and EventsWhole says that it is also the first that no event
	// has, see Owner.ReserveEvents.
	NextEvent   uint64 `json:"next_event,omitempty"`
	EventsWhole bool   `json:"events_whole,omitempty"`
}

// lastExact bounds the number of an end that is taken from the time of a file, which may say anything: it is in the year 2112, and leaves
// room below the numbers that a program which knows only floating point cannot hold.
const lastExact = 1 << 52

// maxSequence is the last number that an ID can hold.
const maxSequence = 1e15 - 1

// ErrBadCounter is wrapped when storage.json says a next number that no ID can have. Numbers that were pruned stand nowhere else, so
// a person must say how it goes on.
var ErrBadCounter = errors.New("no operation can have this number")

// sequence gives out the numbers that make IDs unique. They come from a counter on disk and from nothing else: neither the
// clock nor the process ID is trusted, since both repeat.
type sequence struct {
	tree      *Tree
	mu        sync.Mutex // guards next and end
	next, end uint64
}

// take returns a number that was never given out by this storage before.
func (s *sequence) take() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == s.end {
		start, err := s.reserve()
		if err != nil {
			return 0, fmt.Errorf("reserve operation numbers: %w", err)
		}
		s.next, s.end = start, start+sequenceBlock
	}
	n := s.next
	s.next++
	return n, nil
}

// reserve takes the next block.
func (s *sequence) reserve() (start uint64, err error) {
	t := s.tree
	err = t.changeStorage(func(info *storageInfo) error {
		start = info.NextSequence
		if start > maxSequence-sequenceBlock {
			return t.badCounter(strconv.FormatUint(start, 10))
		}
		info.NextSequence += sequenceBlock
		return nil
	})
	return start, err
}

// changeStorage changes storage.json. The lock on the directory keeps two processes from taking the same block, and a block is on
// the disk before a number of it is used, whatever the durability is: a number must not come twice, not even after a power cut.
func (t *Tree) changeStorage(change func(*storageInfo) error) (err error) {
	dir, err := os.Open(t.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := flock(dir, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", t.dir, err)
	}
	info, err := t.storageInfo()
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
	if err := t.files.replace(storageFile, append(data, '\n'), true); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return &SyncError{t.dir, err}
	}
	return nil
}

// checkLayout refuses a storage of a newer version, also to readers and those who only ask.
func (t *Tree) checkLayout() error {
	data, err := t.readRegular(t.root, storageFile, 1<<16)
	var info storageInfo
	if err != nil || json.Unmarshal(data, &info) != nil || info.Version <= storageVersion {
		return nil //nolint:nilerr // a storage without it, or with a damaged one, is mended when numbers are needed
	}
	return fmt.Errorf("%w (layout %d, this one knows %d); start the newer version", ErrNewerVersion, info.Version, storageVersion)
}

// storageInfo reads storage.json. When it is missing or damaged the counter goes on after the highest number that any file of
// the storage bears: slow, and only then.
func (t *Tree) storageInfo() (storageInfo, error) {
	info, whole, err := t.readStorage()
	if err != nil || whole {
		return info, err
	}
	highest, newest, err := t.highestSequence()
	if highest > 0 {
		// Another process may hold a block of which no file tells yet.
		highest += sequenceBlock
	}
	lost := storageInfo{Version: storageVersion, NextSequence: highest + 1, Mark: info.Mark}
	if highest > 0 {
		// Nobody knows how many ends were numbered without reading every record. They were fewer than microseconds went by, so the
		// time is higher than the last number, and a program can still hold it exactly. A clock that was set back may be behind the last
		// end, whose record is a file of that time.
		if now := t.options.Now(); newest.Before(now) {
			newest = now
		}
		lost.NextFinished = uint64(min(max(newest.UnixMicro(), 1), lastExact))
		lost.NextEvent = lost.NextFinished // of which there were fewer than microseconds, too
	}
	return lost, err
}

// readStorage reads what storage.json says, and whether it says all. A file that is missing or damaged says what can be read of it.
func (t *Tree) readStorage() (info storageInfo, whole bool, err error) {
	data, err := t.readRegular(t.root, storageFile, 1<<16)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errIrregular) {
		return info, false, nil
	}
	if err != nil {
		return info, false, err
	}
	err = json.Unmarshal(data, &info)
	if info.Version > storageVersion {
		return info, false, fmt.Errorf("storage %s: %w (layout %d, this one knows %d); start the newer version", t.dir, ErrNewerVersion, info.Version, storageVersion)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field == "next_sequence" {
		return info, false, t.badCounter("a " + wrong.Value)
	}
	if info.NextSequence > maxSequence {
		return info, false, t.badCounter(strconv.FormatUint(info.NextSequence, 10))
	}
	return info, err == nil && info.Version == storageVersion && info.NextSequence > 0, nil
}

func (t *Tree) badCounter(found string) error {
	return fmt.Errorf("%s: next_sequence is %s: %w: write one below %d that is higher than that of every operation, or remove the member, and it is found from the files that are left",
		filepath.Join(t.dir, storageFile), found, ErrBadCounter, uint64(maxSequence-sequenceBlock))
}

// highestSequence also returns when the newest file that bears a number was written.
func (t *Tree) highestSequence() (highest uint64, newest time.Time, err error) {
	// Operations that ended and were pruned stand in the list only.
	if err := t.scanLive(func(id ID, _ bool) { highest = max(highest, id.Sequence()) }); err != nil && !errors.Is(err, errIrregular) {
		return 0, newest, fmt.Errorf("find the highest operation number: %w", err)
	}
	err = fs.WalkDir(t.root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we walked
		}
		if err != nil {
			return fmt.Errorf("find the highest operation number: %w", err)
		}
		name := entry.Name()
		if strings.HasPrefix(path, corruptDir+"/") {
			_, name, _ = strings.Cut(name, "_") // the time at which it was moved there
		}
		head, _, _ := strings.Cut(name, ".")
		if id, err := ParseID(head); err == nil {
			highest = max(highest, id.Sequence())
			if info, err := entry.Info(); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
			if entry.IsDir() {
				return fs.SkipDir // artifacts hold no IDs of ours
			}
		}
		return nil
	})
	return highest, newest, err
}
