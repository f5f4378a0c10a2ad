package machine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// A process without a free descriptor can neither write a record nor start a command, and cannot
// end its operations properly. The last descriptors are therefore reserved for work in progress:
// near the limit the process first refuses new work, then new readers.
const (
	// workReserve is the number of free descriptors required per piece of new work: starting a
	// command briefly takes up to seven.
	workReserve = 8
	// readerReserve is the number of free descriptors required for one more connection or stream.
	readerReserve = 4
	// startShare is the fraction of the limit reserved for submits and readers when operations
	// start: 1/startShare.
	startShare = 8
	// plenty is the number of free descriptors down to which one count serves further reservations, for as long as
	// countValid. Each takes from that count what it reserves, and the daemon opens far fewer files in that time
	// without a reservation.
	plenty     = 4096
	countValid = time.Second
)

// OutOfFiles reports whether err means that this process, or the machine, may open no more files.
func OutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Descriptors is the budget of file descriptors of this process. It is safe for concurrent use.
type Descriptors struct {
	of *os.File // an open file, to probe with

	mu          sync.Mutex // guards the last count, which is zero before the first
	counted     time.Time
	free, limit int // free without what was reserved since
}

// NewDescriptors returns a budget that probes with a descriptor of an open file, which must stay open.
func NewDescriptors(of *os.File) *Descriptors { return &Descriptors{of: of} }

// ForWork returns an error that wraps syscall.EMFILE if too few descriptors are free for
// this many pieces of new work; a submit is refused then. While plenty are free, it may take up to a second to notice
// a lower limit, or files that were opened without a reservation.
func (d *Descriptors) ForWork(pieces int) error {
	return d.reserve(workReserve * pieces)
}

// ForReader is ForWork for readers, which need fewer free descriptors.
func (d *Descriptors) ForReader() error { return d.reserve(readerReserve) }

// ForStart is ForWork for the start of a queued operation. It requires more
// free descriptors, because an operation may keep its own for hours, and submits and readers need
// some too. pieces counts this start and the earlier starts whose descriptors are not open yet.
func (d *Descriptors) ForStart(pieces int) error {
	reserve := workReserve * pieces
	free, limit, err := d.count(reserve)
	if share := limit / startShare; err == nil && share > reserve {
		if reserve = share; free < reserve { // it may be more: see freeDescriptors
			free, limit, err = freeDescriptors(d.of, reserve)
		}
	}
	return descriptorError(free, limit, reserve, err)
}

func (d *Descriptors) reserve(reserve int) error {
	free, limit, err := d.count(reserve)
	return descriptorError(free, limit, reserve, err)
}

// count is freeDescriptors, or what the last count has left if that is plenty.
func (d *Descriptors) count(reserve int) (free, limit int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.free-reserve < plenty || now.Sub(d.counted) >= countValid {
		if d.free, d.limit, err = freeDescriptors(d.of, reserve); err != nil {
			d.free = 0
			return 0, 0, err
		}
		d.counted = now
	}
	free = d.free
	d.free -= reserve
	return free, d.limit, nil
}

// descriptorError returns an error if fewer than reserve descriptors are free, or if the count
// failed with err.
func descriptorError(free, limit, reserve int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("count the files that can still be opened: %w", err)
	case free < reserve:
		return fmt.Errorf("%w: the limit is %d, %d are in use, and %d are kept free for work that runs or is starting; "+
			"raise the limit (ulimit -n, LimitNOFILE= in a unit of systemd)", syscall.EMFILE, limit, limit-free, reserve)
	}
	return nil
}
