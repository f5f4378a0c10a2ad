package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// definitions caches the job definitions under which live operations were submitted, by hash. It
// holds one for each version of a job that was used since the daemon started.
type definitions struct {
	mu     sync.Mutex
	byHash map[string]*catalog.Definition
}

func (d *definitions) get(hash string) *catalog.Definition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byHash[hash]
}

func (d *definitions) put(hash string, def *catalog.Definition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byHash == nil {
		d.byHash = make(map[string]*catalog.Definition)
	}
	d.byHash[hash] = def
}

// longestGrace returns the longest grace period of the cached definitions.
func (d *definitions) longestGrace() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var longest time.Duration
	for _, def := range d.byHash {
		longest = max(longest, def.Grace)
	}
	return longest
}
