package main

import (
	"context"
	"errors"
	"time"
)

// lostError says that a server could not be reached, or could not do its work.
type lostError struct {
	server string
	err    error
}

func (e *lostError) Error() string { return "the " + e.server + " is lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// at classifies the error of a server. It returns an error of a single entry unchanged; all others mean that
// the connection is lost. It logs when a lost server is available again.
func (w *worker) at(server string, err error) error {
	var wrong *refusal
	var other *claimedError
	if err != nil && !errors.Is(err, errMissing) && !errors.As(err, &wrong) && !errors.As(err, &other) {
		return &lostError{server, err}
	}
	if w.lost[server] {
		delete(w.lost, server)
		w.out.line("The %s is there again.", server)
		w.out.phase(w.mode)
	}
	return err
}

// insist does something until the server does not fail. It returns false when ctx ended before.
func (w *worker) insist(ctx context.Context, server string, do func(context.Context) error) bool {
	for ctx.Err() == nil {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, patience)
		err := w.at(server, do(limited))
		cancel()
		var lost *lostError
		if !errors.As(err, &lost) {
			return err == nil
		}
		w.lose(ctx, lost, began)
	}
	return false
}

// lose logs that a server is lost, and waits until the next attempt: a fixed time after the start of the
// failed one.
func (w *worker) lose(ctx context.Context, lost *lostError, began time.Time) {
	if ctx.Err() != nil {
		return // it was given up, and not lost
	}
	w.lost[lost.server] = true
	w.out.line("LOST: %v. It is tried again every %s.", lost, w.retry)
	w.out.phase("waiting for the " + lost.server)
	w.wait(ctx, w.retry-time.Since(began))
}

// wait returns when the time is over or ctx has ended.
func (w *worker) wait(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(max(0, long))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
