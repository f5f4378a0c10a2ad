package daemon

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

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
	"github.com/jobdir/jobdir/submit"
)

// quiet is how long a file in new/ or lanes/ that cannot be understood must not have been written before that is its final word: somebody may be
// writing it where it stands.
const quiet = 100 * time.Millisecond

// mostAtOnce is how many submissions by file are carried out at the same time.
const mostAtOnce = 32

// longestCreator bounds what created_by says of a file.
const longestCreator = 100

// inbox carries out the submissions that are moved into new/. One goes from there to taken/ and is submitted under an idempotency key made
// of what the file is, so that it makes its operations once however often the daemon is killed on the way; the answer is written
// before the file goes.
type inbox struct {
	d *Daemon
	// waiting are the names whose turn comes at a time, by the clock that goes on evenly.
	waiting map[string]time.Time
	// held are those of them that nothing new is taken for at the moment, and why: they are looked at as soon as a lane says something else.
	held map[string]string
	// said are the names whose delay is in the log.
	said map[string]bool
	odd  oddFiles
}

// keepInbox runs until ctx ends. What waits then is for the next daemon.
func (d *Daemon) keepInbox(ctx context.Context) {
	if d.config.Intake == nil {
		return
	}
	select {
	case <-d.ready:
	case <-ctx.Done():
		return
	}
	in := &inbox{d: d, waiting: make(map[string]time.Time), held: make(map[string]string), said: make(map[string]bool)}
	for ctx.Err() == nil {
		if err := in.watch(ctx); err != nil {
			d.logger.Warn("new/ is watched anew", "error", err)
		}
		if !sleepFor(ctx, tryAgain) {
			return
		}
	}
}

// sleepFor returns after a time, or reports false when ctx ends first.
func sleepFor(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch carries out what comes until ctx ends, or the folder is another one.
func (in *inbox) watch(ctx context.Context) error {
	dir, err := watch.OpenDir(in.d.owner.NewDir(), watchedSubmission, in.d.config.Watch)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- dir.Run(watching) }()
	defer func() {
		stop()
		<-ended //nolint:errcheck // it was ended here, or its error is returned
	}()
	taken, err := in.d.owner.TakenSubmissions()
	if err != nil {
		return err
	}
	in.carryOut(ctx, taken)
	if err := in.list(ctx); err != nil {
		return err
	}
	check := time.NewTicker(in.d.config.SweepInterval)
	defer check.Stop()
	for {
		timer := in.timer()
		select {
		case <-dir.Ready():
			names, rescan := dir.Take()
			if at := slices.Index(names, oddSubmission); at >= 0 {
				names = slices.Delete(names, at, at+1)
				in.findOdd()
			}
			in.carryOut(ctx, names)
			if rescan {
				err = errors.Join(dir.Check(), in.list(ctx))
			}
		case <-timer.C:
			in.carryOut(ctx, in.due(time.Now()))
		case <-in.d.lanes.reopened:
			in.carryOut(ctx, slices.Sorted(maps.Keys(in.held)))
		case <-check.C:
			err = errors.Join(dir.Check(), in.list(ctx), in.d.owner.SweepAnswers())
		case err = <-ended:
			ended <- err
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// timer fires when the first of the names that wait has its turn.
func (in *inbox) timer() *time.Timer {
	next := time.Hour
	for _, at := range in.waiting {
		next = min(next, time.Until(at))
	}
	return time.NewTimer(max(next, 0))
}

func (in *inbox) due(now time.Time) []string {
	var names []string
	for name, at := range in.waiting {
		if !at.After(now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (in *inbox) list(ctx context.Context) error {
	in.findOdd()
	names, err := in.d.owner.Submissions()
	if err == nil {
		in.carryOut(ctx, names)
	}
	return err
}

// carryOut deals with submissions side by side, and returns when it is done with all.
func (in *inbox) carryOut(ctx context.Context, names []string) {
	if in.d.draining() || in.d.stopping.Load() {
		return // for the next daemon
	}
	var mu sync.Mutex // guards what in has of names
	var all sync.WaitGroup
	slots := make(chan struct{}, mostAtOnce)
	for _, name := range names {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			again, err := in.d.submission(ctx, name)
			mu.Lock()
			why := in.note(name, again, err)
			mu.Unlock()
			if why == "" {
				return
			}
			if err := in.d.owner.SayWaiting(name, why); err != nil {
				in.d.logger.Warn("nobody is told what a submission waits for", "name", name, "error", err)
			}
		})
	}
	all.Wait()
}

// note has a submission carried out again after a while, when it could not be. why is what it waits for from now on, "" when that is no news.
func (in *inbox) note(name string, again time.Duration, err error) (why string) {
	delete(in.waiting, name)
	switch {
	case again > 0:
		in.waiting[name] = time.Now().Add(again)
	case err == nil:
		delete(in.said, name)
	}
	if busy, ok := errors.AsType[*submit.BusyError](err); !ok {
		delete(in.held, name)
	} else if kind := holdKind(busy); in.held[name] != kind {
		in.held[name], why = kind, busy.Text
		delete(in.said, name)
	}
	if err == nil || in.said[name] {
		return why
	}
	in.said[name] = true
	in.d.logger.Warn("a submission in new/ cannot be carried out now; it is tried again", "name", name, "error", err)
	return why
}

// holdKind is what makes one reason to wait another one: how many stand before it does not.
func holdKind(busy *submit.BusyError) string {
	if busy.Full {
		return "full"
	}
	return busy.Text
}

// submission carries out one submission as far as that is possible now. again is when to come back to it, 0 for not; err says why, where that
// is worth a line in the log.
func (d *Daemon) submission(ctx context.Context, name string) (again time.Duration, err error) {
	err = d.takeSubmission(name)
	var unfinished *unfinishedError
	switch {
	case errors.As(err, &unfinished):
		return unfinished.wait, nil
	case errors.Is(err, fs.ErrExist):
		again = quiet // an earlier one of the name comes first
	case err != nil:
		return d.submissionFailed(name, false, err)
	}
	data, identity, err := d.owner.ReadSubmission(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // there is none, or it was rejected
	}
	if err != nil {
		return d.submissionFailed(name, true, err)
	}
	outcomes, err := d.submitData(ctx, name, identity, data)
	if err != nil {
		return d.submissionFailed(name, true, err)
	}
	ids := make([]statefs.ID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.Record.ID
	}
	if err := d.owner.AcceptSubmission(name, ids); err != nil {
		return d.submissionFailed(name, true, err)
	}
	d.logger.Info("submitted by file", "name", name, "operations", len(ids))
	return again, nil
}

// unfinishedError says that a file may still be written.
type unfinishedError struct{ wait time.Duration }

func (*unfinishedError) Error() string { return "the file may still be written" }

// takeSubmission moves a submission to where nobody writes it, once it is whole. It returns nil when there is none: one that was taken before
// may be left.
func (d *Daemon) takeSubmission(name string) error {
	data, written, err := d.owner.PeekSubmission(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !json.Valid(data) {
		// A time that is yet to come is that of another clock.
		if age := time.Since(written); age > -time.Hour && age < quiet {
			return &unfinishedError{max(quiet-age, time.Millisecond)}
		}
	}
	err = d.owner.TakeSubmission(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// submitData submits what a file says.
func (d *Daemon) submitData(ctx context.Context, name, identity string, data []byte) ([]submit.Outcome, error) {
	entries, err := parseSubmission(data)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if o := &entries[i].Options; o.IdempotencyKey == "" {
			o.IdempotencyKey = fmt.Sprintf("file:%s:%d", identity, i)
		}
	}
	requests, err := submit.Requests(d.config.Catalog, entries)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		requests[i].By = "new/" + name[:min(len(name), longestCreator)]
	}
	return d.config.Intake.Submit(ctx, requests...)
}

func parseSubmission(data []byte) ([]submit.Entry, error) {
	if submit.IsList(data) {
		return submit.ParseList(data)
	}
	entry, err := submit.ParseEntry(data)
	return []submit.Entry{entry}, err
}

// submissionFailed decides whether an error is the answer to a submission, or is to be gone the next time.
func (d *Daemon) submissionFailed(name string, taken bool, err error) (again time.Duration, _ error) {
	var failed *statefs.SyncError
	var busy *submit.BusyError
	var odd *statefs.OddSubmissionError
	switch {
	case errors.As(err, &failed):
		d.fail(err)
		return 0, err
	case errors.Is(err, context.Canceled):
		return 0, nil // for the next daemon
	case errors.As(err, &busy):
		return max(busy.After, tryAgain), err
	case !submit.Refused(err) && !errors.As(err, &odd):
		return tryAgain, err
	}
	if answerErr := d.owner.RejectSubmission(name, taken, err.Error()); answerErr != nil {
		return tryAgain, answerErr
	}
	d.logger.Warn("a submission in new/ is rejected", "name", name, "reason", err)
	return 0, nil
}
