package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// DefaultPatience is how long a client waits for a daemon that is away. A restart takes a second or two; an upgrade by a package
// manager can take a minute.
const DefaultPatience = 2 * time.Minute

const (
	firstDelay = 20 * time.Millisecond
	lastDelay  = time.Second
)

// WithPatience says for how long, each time, Follow, FollowRaw and Wait try to reach a daemon again that the client has reached
// before; they go on where they were, so that nothing is missing and nothing comes twice. 0 makes them return a *[CutError] at
// once. The default is [DefaultPatience].
func WithPatience(patience time.Duration) Option {
	return func(c *Client) { c.patience = patience }
}

// WithNotice has lost called when the connection to a daemon was lost and is tried again, with the reason, and back when it is
// there again. They are called by the goroutine that follows or waits.
func WithNotice(lost func(err error), back func()) Option {
	return func(c *Client) { c.lost, c.back = lost, back }
}

// absence is a time without a daemon, as one call of Follow or Wait sees it.
type absence struct {
	client *Client
	since  time.Time // when the connection that there is was made
	until  time.Time // when the patience is over; zero while the daemon is there
	away   bool      // the caller was told so
	delay  time.Duration
}

// connected notes that the daemon answered.
func (a *absence) connected() {
	a.since = time.Now()
	if a.away && a.client.back != nil {
		a.client.back()
	}
	a.away = false
}

// lasted says whether the connection that was lost was worth something. One that is cut off at once, again and again, as by a
// proxy without a daemon behind it, does not renew the patience.
func (a *absence) lasted(further bool) bool {
	return further || !a.since.IsZero() && time.Since(a.since) > lastDelay
}

// again says whether to try once more after err, when it is time for that.
func (a *absence) again(ctx context.Context, err error, further bool) bool {
	if a.client.patience <= 0 || !a.client.reached.Load() || ctx.Err() != nil {
		return false
	}
	if a.until.IsZero() || a.lasted(further) {
		a.until, a.delay = time.Now().Add(a.client.patience), firstDelay
	}
	a.since = time.Time{}
	if !a.away && a.client.lost != nil {
		a.client.lost(err)
	}
	a.away = true
	if time.Now().After(a.until) {
		return false
	}
	// All who follow lose the daemon at the same moment; they shall not come back at the same moment.
	timer := time.NewTimer(a.delay/2 + rand.N(a.delay/2))
	defer timer.Stop()
	a.delay = min(2*a.delay, lastDelay)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// persist calls try with the byte to begin at until it is not cut off, or the patience is over.
func (c *Client) persist(ctx context.Context, id statefs.ID, offset int64, try func(offset int64, connected func()) (*Footer, error)) (*Footer, error) {
	away := absence{client: c}
	for {
		footer, err := try(offset, away.connected)
		cut, isCut := errors.AsType[*CutError](err)
		further := isCut && cut.Offset > offset
		if further {
			offset = cut.Offset
		}
		if !isCut && !isAway(err) {
			return footer, err
		}
		if !away.again(ctx, err, further) {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			if !away.until.IsZero() && !isCut {
				err = &CutError{ID: id, Offset: offset, Err: err}
			}
			return nil, err
		}
	}
}

// isAway says whether an error is that of a daemon which stops or is not there, not one about the question.
func isAway(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Status == http.StatusServiceUnavailable
	}
	_, lost := errors.AsType[*lostError](err)
	return lost || Unreachable(err)
}
