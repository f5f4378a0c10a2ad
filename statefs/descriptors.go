package statefs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// A process that has no descriptor left can neither write a record nor start a command, and what it has begun it cannot end in order.
// So the last ones are kept for that: first no new work is taken on, then no new reader, and what is under way finds one.
const (
	// workReserve is what must be free for each piece of new work: starting a command takes up to seven for a moment.
	workReserve = 8
	// readerReserve is what must be free for one more connection or stream.
	readerReserve = 4
)

// OutOfFiles says that this process, or the machine, may open no more files.
func OutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// RoomForWork returns an error that wraps syscall.EMFILE when this process has so many files open that it should not take on so many
// pieces of new work: nothing is submitted then, and nothing that is queued begins. Far from the limit it costs next to nothing, near it some microseconds.
func (t *Tree) RoomForWork(pieces int) error { return t.roomFor(workReserve * pieces) }

// RoomForReader is RoomForWork for what only reads, for which there is room longer.
func (t *Tree) RoomForReader() error { return t.roomFor(readerReserve) }

func (t *Tree) roomFor(reserve int) error {
	if t.room.take(reserve) {
		return nil
	}
	free, limit, err := spare(t.raw, reserve)
	switch {
	case err != nil:
		return fmt.Errorf("look how many files more can be opened: %w", err)
	case free < reserve:
		return &fewFilesError{free, limit}
	}
	t.room.found(free - reserve)
	return nil
}

// room remembers for a moment how many descriptors a look found free: whoever asks takes his from that, and half of them are left to
// those who do not ask, so far from the limit nobody looks for himself. It is safe for concurrent use.
type room struct {
	mu    sync.Mutex // guards the rest
	left  int
	until time.Time
}

// roomMoment is how long a look is good.
const roomMoment = 100 * time.Millisecond

// take reports whether so many are free for sure.
func (r *room) take(count int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left < count || !time.Now().Before(r.until) {
		return false
	}
	r.left -= count
	return true
}

// found says that so many are free now.
func (r *room) found(free int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.until = free/2, time.Now().Add(roomMoment)
}

// fewFilesError wraps syscall.EMFILE.
type fewFilesError struct{ free, limit int }

func (e *fewFilesError) Error() string {
	return fmt.Sprintf("too many open files: of the limit of %d only %d are left, which are kept for what is under way; raise the limit (ulimit -n)", e.limit, e.free)
}

func (e *fewFilesError) Unwrap() error { return syscall.EMFILE }

// fewFiles says what RoomForWork says, "" when there is room.
func (t *Tree) fewFiles() string {
	if few, ok := errors.AsType[*fewFilesError](t.RoomForWork(1)); ok {
		return few.Error()
	}
	return ""
}
