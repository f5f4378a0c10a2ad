package daemon

import (
	"sync"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// resourceUsage adds up what the commands of a run used: the sum of their processor time, and the
// largest memory of any of them. It is safe for concurrent use.
type resourceUsage struct {
	mu  sync.Mutex
	sum *statefs.ResourceUse // nil while no command has ended
}

func (u *resourceUsage) add(exit keeper.Exit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sum == nil {
		u.sum = new(statefs.ResourceUse)
	}
	u.sum.UserSeconds += exit.UserTime.Seconds()
	u.sum.SystemSeconds += exit.SystemTime.Seconds()
	u.sum.PeakMemory = max(u.sum.PeakMemory, exit.MaxRSS)
}

// addTo returns the usage of an operation including this run, given that of its earlier runs.
func (u *resourceUsage) addTo(earlier *statefs.ResourceUse) *statefs.ResourceUse {
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
