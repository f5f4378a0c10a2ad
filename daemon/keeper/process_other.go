//go:build !linux

package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultIdle is how long a keeper without commands waits for a daemon.
const DefaultIdle = 10 * time.Second

var errNoProcess = fmt.Errorf("a keeper process needs Linux: %w", errors.ErrUnsupported)

// Serve needs Linux.
func Serve(context.Context, Options) error { return errNoProcess }

// Main needs Linux.
func Main(context.Context, Options) error { return errNoProcess }

// ReapOrphans needs Linux; elsewhere it waits for the end of ctx.
func ReapOrphans(ctx context.Context) { <-ctx.Done() }

// Pool needs Linux; on this system Open never returns one.
type Pool struct{ InProcess }

// Open needs Linux.
func Open(context.Context, PoolOptions) (*Pool, error) { return nil, errNoProcess }

// Close does nothing.
func (*Pool) Close() error { return nil }

// Prepare needs Linux.
func (*Pool) Prepare(context.Context) error { return errNoProcess }

// Find finds nothing.
func (*Pool) Find(Key, string) (Running, bool) { return nil, false }

// Silent is empty.
func (*Pool) Silent() []SilentKeeper { return nil }

// Settled is never closed.
func (*Pool) Settled() <-chan struct{} { return nil }

// Retire does nothing.
func (*Pool) Retire() {}

// Commands is empty.
func (*Pool) Commands() []HeldCommand { return nil }

// PIDs is empty.
func (*Pool) PIDs() []int { return nil }
