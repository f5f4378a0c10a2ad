package front

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// floodConnections is how many open connections count as a flood. Their memory is worth a garbage collection.
	floodConnections = 1000
	// quietPeriod must pass without a closed connection before memory is released: a connection that ends frees its
	// memory a moment later.
	quietPeriod = time.Second
)

// memoryReleaser returns memory to the kernel after a flood of connections. The runtime keeps the heap and the stacks
// of thousands of past connections for reuse as long as the process allocates little. The zero value is ready to use.
type memoryReleaser struct {
	mu         sync.Mutex
	open, peak int
	timer      *time.Timer // set after a flood until release
}

// opened counts a new connection.
func (g *memoryReleaser) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open++
	g.peak = max(g.peak, g.open)
}

// closed counts a closed connection. When nine tenths of a flood have closed, it schedules the release.
func (g *memoryReleaser) closed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	switch {
	case g.timer != nil:
		g.timer.Reset(quietPeriod)
	case g.peak >= floodConnections && g.open <= g.peak/10:
		g.timer = time.AfterFunc(quietPeriod, g.release)
	}
}

func (g *memoryReleaser) release() {
	g.mu.Lock()
	g.timer, g.peak = nil, g.open
	g.mu.Unlock()
	runtime.GC() // pools, such as the buffers of net/http, survive one collection; FreeOSMemory does the second
	debug.FreeOSMemory()
}

// stop cancels a scheduled release.
func (g *memoryReleaser) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
}
