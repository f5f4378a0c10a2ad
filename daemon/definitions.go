package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// definitions are the job definitions that live operations were submitted under, by hash. There is one for each version of a
// job that was used since the daemon started.
type definitions struct {
	mu   sync.Mutex
	kept map[string]*catalog.Definition
}

func (d *definitions) get(hash string) *catalog.Definition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept[hash]
}

func (d *definitions) put(hash string, def *catalog.Definition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kept == nil {
		d.kept = make(map[string]*catalog.Definition)
	}
	d.kept[hash] = def
}

// longestGrace returns the longest grace period of all of them.
func (d *definitions) longestGrace() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var longest time.Duration
	for _, def := range d.kept {
		longest = max(longest, def.Grace)
	}
	return longest
}
