package daemon

import (
	"sync"
	"time"
)

const (
	// smallJump is how far a clock may be corrected between two looks without being a jump.
	smallJump = time.Minute
	// believeJump is how long a clock that has jumped ahead must stay there to be believed.
	believeJump = 24 * time.Hour
)

// steady is the time by which the retention deletes. It follows the clock of the machine, but not at once when that jumps ahead: all
// would be too old, and be deleted, before somebody sets the clock right. A jump back is believed: then what is there is kept for longer.
//
// It knows of a jump by the time since the daemon began, which no setting of the clock changes. What the clock did before that,
// or while the machine slept, it cannot know; a sleep counts as a jump, so that after one things go a day later.
type steady struct {
	mu     sync.Mutex
	began  time.Time // when the daemon began, by a clock that is believed; zero before the first look
	jumped bool
	at     time.Duration // when the jump was seen
}

// now returns the time to go by. clock is what the clock says, and ran how long the daemon has run.
func (s *steady) now(clock time.Time, ran time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := clock.Round(0).Add(-ran) // without the reading that no jump changes
	ahead := began.Sub(s.began)
	switch {
	case s.began.IsZero(), ahead <= smallJump, s.jumped && ran-s.at >= believeJump:
		s.began, s.jumped = began, false
		return clock
	case !s.jumped:
		s.jumped, s.at = true, ran
	}
	return s.began.Add(ran)
}
