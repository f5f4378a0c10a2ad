package daemon

import (
	"sync"

	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// used adds up what the commands of a run used: processor time is a sum, memory the most that any of them had. It is safe for
// concurrent use.
type used struct {
	mu  sync.Mutex
	sum *statefs.ResourceUse // nil while no command has ended
}

func (u *used) add(exit keeper.Exit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sum == nil {
		u.sum = new(statefs.ResourceUse)
	}
	u.sum.UserSeconds += exit.UserTime.Seconds()
	u.sum.SystemSeconds += exit.SystemTime.Seconds()
	u.sum.PeakMemory = max(u.sum.PeakMemory, exit.MaxRSS)
}

// onto returns what an operation has used with this run, when earlier ones used that much.
func (u *used) onto(earlier *statefs.ResourceUse) *statefs.ResourceUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sum == nil {
		return earlier
	}
	all := *u.sum
	if earlier != nil {
		all.UserSeconds += earlier.UserSeconds
		all.SystemSeconds += earlier.SystemSeconds
		all.PeakMemory = max(all.PeakMemory, earlier.PeakMemory)
	}
	return &all
}
