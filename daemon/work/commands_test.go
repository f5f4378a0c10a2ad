package work

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// TestResourceUsageAddsUp: resource usage adds up over the commands of a run, and over runs.
func TestResourceUsageAddsUp(t *testing.T) {
	t.Parallel()
	var first, second, none resourceUsage
	first.add(keeper.Exit{UserTime: time.Second, SystemTime: 2 * time.Second, MaxRSS: 100})
	first.add(keeper.Exit{UserTime: time.Second, MaxRSS: 300})
	second.add(keeper.Exit{SystemTime: time.Second, MaxRSS: 200})
	if none.addTo(nil) != nil {
		t.Error("nothing ended, and something was used")
	}
	all := second.addTo(none.addTo(first.addTo(nil)))
	if want := (statefs.ResourceUse{UserSeconds: 2, SystemSeconds: 3, PeakMemory: 300}); *all != want {
		t.Errorf("%+v, want %+v", *all, want)
	}
}
