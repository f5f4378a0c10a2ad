package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/watch"
)

// maxSubmissions limits the submissions by file that run concurrently.
const maxSubmissions = 32

// maxCreator limits the part of the file name in created_by, in bytes.
const maxCreator = 100

// inbox carries out the submissions that are moved into new/. It moves a file to taken/ and submits
// it under an idempotency key made of the file's identity, so that the file creates its operations
// once, however often the daemon is killed in between. The answer is written before the file is
// removed.
type inbox struct {
	config *Config
	// retryAt maps a submission to the time of its next try, by the monotonic clock.
	retryAt map[string]time.Time
	// heldFor maps a submission that is held, because nothing new is accepted for it now, to the
	// reason. These are tried again as soon as a lane reopens.
	heldFor map[string]string
	// logged holds the names whose delay has been logged.
	logged     map[string]bool
	strayFiles strayFileLog
}

// retryInterval is the delay before a submission is tried again, and before watching new/ again.
const retryInterval = time.Second

func newInbox(c *Config) *inbox {
	return &inbox{
		config: c, retryAt: make(map[string]time.Time), heldFor: make(map[string]string),
		logged: make(map[string]bool),
	}
}

// run runs until ctx ends. Submissions that still wait are left to the next daemon.
func (in *inbox) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := in.watch(ctx)
		if gone, is := errors.AsType[*watch.GoneError](err); is { // without the advice to start again
			in.config.Logger.Warn("watching new/ again", "reason", gone.Reason)
		} else if err != nil {
			in.config.Logger.Warn("watching new/ again", "error", err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// watch handles submissions until ctx ends, or returns an error, for example when the folder was
// replaced.
func (in *inbox) watch(ctx context.Context) error {
	dir, err := watch.OpenDir(in.config.Owner.NewDir(), watchedSubmission, in.config.Watch)
	if err != nil {
		return err
	}
	return dir.RunWith(ctx, func(watching context.Context) error {
		taken, err := in.config.Owner.Inbox.Taken()
		if err != nil {
			return err
		}
		in.submitAll(ctx, taken)
		if err := in.scan(ctx); err != nil {
			return err
		}
		check := time.NewTicker(in.config.Interval)
		defer check.Stop()
		for err == nil {
			select {
			case <-dir.Ready():
				names, rescan := dir.Take()
				if at := slices.Index(names, straySubmission); at >= 0 {
					names = slices.Delete(names, at, at+1)
					in.logStrayFiles()
				}
				in.submitAll(ctx, names)
				if rescan {
					err = errors.Join(dir.Check(), in.scan(ctx))
				}
			case <-time.After(in.nextTry()):
				in.submitAll(ctx, in.due(time.Now()))
			case <-in.config.Reopened:
				in.submitAll(ctx, slices.Sorted(maps.Keys(in.heldFor)))
			case <-check.C:
				err = errors.Join(dir.Check(), in.scan(ctx), in.config.Owner.Inbox.Sweep())
			case <-watching.Done():
				return nil
			}
		}
		return err
	})
}

// nextTry returns the time until the earliest retryAt.
func (in *inbox) nextTry() time.Duration {
	next := time.Hour
	for _, at := range in.retryAt {
		next = min(next, time.Until(at))
	}
	return next
}

func (in *inbox) due(now time.Time) []string {
	var names []string
	for name, at := range in.retryAt {
		if !at.After(now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (in *inbox) scan(ctx context.Context) error {
	in.logStrayFiles()
	names, err := in.config.Owner.Inbox.List()
	if err == nil {
		in.submitAll(ctx, names)
	}
	return err
}

// submitAll handles submissions concurrently and returns when all are handled.
func (in *inbox) submitAll(ctx context.Context, names []string) {
	if in.config.Stopping() {
		return // left to the next daemon
	}
	var mu sync.Mutex // guards the maps of in
	var all sync.WaitGroup
	slots := make(chan struct{}, maxSubmissions)
	registered, lastOfKey := make(chan struct{}), make(map[string]<-chan struct{})
	close(registered) // nothing precedes the first
	for _, name := range names {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return
		}
		turn := &submitTurn{
			previous: registered, registered: make(chan struct{}), done: make(chan struct{}), lastOfKey: lastOfKey,
		}
		registered = turn.registered
		all.Go(func() {
			defer func() { <-slots }()
			again, err := in.handleSubmission(ctx, name, turn)
			turn.end()
			mu.Lock()
			why := in.noteOutcome(name, again, err)
			mu.Unlock()
			if why == "" {
				return
			}
			if err := in.config.Owner.Inbox.WriteWaiting(name, why); err != nil {
				in.config.Logger.Warn("reason why a submission waits not written", "name", name, "error", err)
			}
		})
	}
	all.Wait()
}

// noteOutcome schedules the next try of a submission that could not be carried out. why is the
// reason to wait if it has changed, and "" otherwise.
func (in *inbox) noteOutcome(name string, again time.Duration, err error) (why string) {
	delete(in.retryAt, name)
	switch {
	case again > 0:
		in.retryAt[name] = time.Now().Add(again)
	case err == nil:
		delete(in.logged, name)
	}
	if busy, ok := errors.AsType[*submit.BusyError](err); !ok {
		delete(in.heldFor, name)
	} else if kind := busyKind(busy); in.heldFor[name] != kind {
		in.heldFor[name], why = kind, busy.Text
		delete(in.logged, name)
	}
	if err == nil || in.logged[name] {
		return why
	}
	in.logged[name] = true
	in.config.Logger.Warn("submission in new/ cannot be accepted now, retrying", "name", name, "error", err)
	return why
}

// busyKind returns what identifies a reason to wait: the same for all full queues, whose text
// contains a changing count.
func busyKind(busy *submit.BusyError) string {
	if busy.Full {
		return "full"
	}
	return busy.Text
}

// handleSubmission carries out one submission as far as possible now. again is the delay before the
// next try, 0 for none. err is the reason, where it is worth a log line.
func (in *inbox) handleSubmission(ctx context.Context, name string, turn *submitTurn) (again time.Duration, err error) {
	again, err = in.takeSubmission(name)
	switch {
	case again > 0:
		return again, nil
	case errors.Is(err, fs.ErrExist):
		again = statefs.QuietPeriod // an earlier file of the same name comes first
	case err != nil:
		return in.submissionFailed(name, false, err)
	}
	data, identity, err := in.config.Owner.Inbox.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // there is none, or it was rejected
	}
	if err != nil {
		return in.submissionFailed(name, true, err)
	}
	outcomes, err := in.submitData(ctx, name, identity, data, turn)
	if err != nil {
		return in.submissionFailed(name, true, err)
	}
	ids := make([]statefs.ID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.Record.ID
	}
	if err := in.config.Owner.Inbox.Accept(name, ids); err != nil {
		return in.submissionFailed(name, true, err)
	}
	in.config.Logger.Info("submitted by file", "name", name, "operations", len(ids))
	return again, nil
}

// takeSubmission moves a complete submission to taken/, where no program writes it. Of a file that may still be
// written, it returns how long to wait. It does nothing if there is no file in new/: an earlier one of that name may
// still be in taken/.
func (in *inbox) takeSubmission(name string) (wait time.Duration, err error) {
	data, written, err := in.config.Owner.Inbox.Peek(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !json.Valid(data) {
		// A modification time more than an hour in the future comes from another clock.
		if age := time.Since(written); age > -time.Hour && age < statefs.QuietPeriod {
			return max(statefs.QuietPeriod-age, time.Millisecond), nil
		}
	}
	if err = in.config.Owner.Inbox.Take(name); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return 0, err
}

// submitData submits the requests in the data of a file.
func (in *inbox) submitData(
	ctx context.Context, name, identity string, data []byte, turn *submitTurn,
) ([]submit.Outcome, error) {
	entries, err := submit.ParseFile(data)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if o := &entries[i].Options; o.IdempotencyKey == "" {
			o.IdempotencyKey = fmt.Sprintf("file:%s:%d", identity, i)
		}
	}
	requests, err := submit.Requests(in.config.Catalog, entries)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		requests[i].By = "new/" + name[:min(len(name), maxCreator)]
	}
	turn.await(requests)
	return in.config.Intake.Submit(ctx, requests...)
}

// submissionFailed decides whether an error rejects a submission for good, or is transient and the
// submission is tried again.
func (in *inbox) submissionFailed(name string, taken bool, err error) (again time.Duration, _ error) {
	var failed *files.SyncError
	var busy *submit.BusyError
	var odd *statefs.InvalidSubmissionError
	switch {
	case errors.As(err, &failed):
		in.config.Fail(err)
		return 0, err
	case errors.Is(err, context.Canceled):
		return 0, nil // left to the next daemon
	case errors.As(err, &busy):
		return max(busy.RetryAfter, retryInterval), err
	case !submit.Refused(err) && !errors.As(err, &odd):
		return retryInterval, err
	}
	if answerErr := in.config.Owner.Inbox.Reject(name, taken, err.Error()); answerErr != nil {
		return retryInterval, answerErr
	}
	in.config.Logger.Warn("submission in new/ rejected", "name", name, "reason", err)
	return 0, nil
}
