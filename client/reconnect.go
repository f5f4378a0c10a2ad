package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

// DefaultReconnectTimeout is how long a client tries to reach a daemon that is gone. A restart takes a second or
// two; an upgrade by a package manager can take a minute.
const DefaultReconnectTimeout = 2 * time.Minute

const (
	firstDelay = 20 * time.Millisecond
	lastDelay  = time.Second
)

// WithReconnectTimeout sets for how long, in each outage, the methods that follow or wait try to reconnect to a daemon
// that the client has reached before. They continue where they were, so that nothing is missing or repeated. With 0,
// Follow and Wait return a *[CutError] at once. The default is [DefaultReconnectTimeout].
func WithReconnectTimeout(patience time.Duration) Option {
	return func(c *Client) { c.reconnectTimeout = patience }
}

// WithReconnectNotice sets callbacks: lost is called with the reason when the connection is lost and the client
// reconnects, back when it is connected again. The goroutine that follows or waits calls them.
func WithReconnectNotice(lost func(err error), back func()) Option {
	return func(c *Client) { c.lost, c.back = lost, back }
}

// outage is the time without a daemon, within one call that follows or waits.
type outage struct {
	conn     *conn
	since    time.Time // when the current connection was made
	deadline time.Time // end of the reconnect timeout; zero while connected
	notified bool      // lost was called
	delay    time.Duration
}

// connected notes that the daemon answered.
func (a *outage) connected() {
	a.since = time.Now()
	if a.notified && a.conn.back != nil {
		a.conn.back()
	}
	a.notified = false
}

// madeProgress reports whether the lost connection was useful. A connection that is closed at once, again and again, as
// by a proxy without a daemon behind it, does not restart the timeout.
func (a *outage) madeProgress(further bool) bool {
	return further || !a.since.IsZero() && time.Since(a.since) > lastDelay
}

// retry waits for the next try after err, and reports whether to make it.
func (a *outage) retry(ctx context.Context, err error, further bool) bool {
	if a.conn.reconnectTimeout <= 0 || !a.conn.reached.Load() || ctx.Err() != nil {
		return false
	}
	if a.deadline.IsZero() || a.madeProgress(further) {
		a.deadline, a.delay = time.Now().Add(a.conn.reconnectTimeout), firstDelay
	}
	a.since = time.Time{}
	if !a.notified && a.conn.lost != nil {
		a.conn.lost(err)
	}
	a.notified = true
	if time.Now().After(a.deadline) {
		return false
	}
	// All followers lose the daemon at the same moment; the jitter spreads their reconnects.
	wait := a.delay/2 + rand.N(a.delay/2)
	a.delay = min(2*a.delay, lastDelay)
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// isUnavailable reports whether err means that the daemon stops or is gone, as opposed to a refusal of the request.
func isUnavailable(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Status == http.StatusServiceUnavailable
	}
	_, lost := errors.AsType[*noAnswerError](err)
	return lost || Unreachable(err)
}
