package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// recording holds the answers that clients got from daemons on a recording disk, each with the position of
// the disk.
type recording struct {
	r    *rig
	at   func() int // position of the disk
	mu   sync.Mutex
	acks []acknowledgement
}

// errNotTold means that an answer did not arrive.
var errNotTold = errors.New("no answer")

func (rec *recording) note(what acknowledgement) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.acks = append(rec.acks, what)
}

// hear records the messages that commands write when they start, until the returned function is called. A
// pipe replaces the file that they write to.
func (rec *recording) hear(t *testing.T) (stop func()) {
	t.Helper()
	must(t, os.Remove(rec.r.effects))
	must(t, unix.Mkfifo(rec.r.effects, 0o600))
	pipe, err := os.OpenFile(rec.r.effects, os.O_RDWR, 0) // open on both ends, so that it does not end with a writer
	must(t, err)
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) != 3 {
				t.Errorf("a command said %q", lines.Text())
				continue
			}
			id, err := statefs.ParseID(words[0])
			number, _, _ := strings.Cut(words[1], "/")
			run, err2 := strconv.Atoi(number)
			if err := errors.Join(err, err2); err != nil {
				t.Errorf("a command said %q: %v", lines.Text(), err)
			}
			at := rec.at()
			rec.note(acknowledgement{sent: at, answered: at, id: id, run: run})
		}
	})
	return func() {
		_ = pipe.Close() // it was only read
		reader.Wait()
	}
}

// hasBegun waits until the command of an operation has started.
func (rec *recording) hasBegun(ctx context.Context, id statefs.ID) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		rec.mu.Lock()
		for _, what := range rec.acks {
			if what.id == id && what.run > 0 {
				rec.mu.Unlock()
				return nil
			}
		}
		rec.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s has not begun", errNotTold, id)
		}
	}
}

func (rec *recording) submit(ctx context.Context, d *daemon, job string) (statefs.ID, error) {
	sent := rec.at()
	op, err := d.Submit(ctx, "t", job, nil)
	if err != nil {
		return statefs.ID{}, fmt.Errorf("%w to the submit of %s: %w", errNotTold, job, err)
	}
	rec.note(acknowledgement{sent: sent, answered: rec.at(), id: op.ID})
	return op.ID, nil
}

// request sends a request and, with a wait, returns when it took effect.
func (rec *recording) request(ctx context.Context, d *daemon, id statefs.ID, ask statefs.Action,
	wait time.Duration,
) error {
	sent := rec.at()
	if _, err := d.Request(ctx, id, ask, wait); err != nil {
		rec.note(acknowledgement{sent: sent, answered: math.MaxInt, id: id, action: ask})
		return fmt.Errorf("%w to %s of %s: %w", errNotTold, ask, id, err)
	}
	rec.note(acknowledgement{sent: sent, answered: rec.at(), id: id, action: ask})
	return nil
}

// end waits for the end of an operation and records its footer.
func (rec *recording) end(ctx context.Context, d *daemon, id statefs.ID) error {
	footer, err := d.Wait(ctx, id)
	if err != nil {
		return fmt.Errorf("%w to the wait for %s: %w", errNotTold, id, err)
	}
	at := rec.at()
	rec.note(acknowledgement{sent: at, answered: at, id: id, end: footer})
	return nil
}

// round is the work of one client: an operation that ends, an operation with steps, and an operation that is
// paused, resumed and cancelled; another one stays paused.
func (rec *recording) round(ctx context.Context, d *daemon) error {
	short, err := rec.submit(ctx, d, "quick")
	if err != nil {
		return err
	}
	long, err := rec.submit(ctx, d, "sleep")
	if err != nil {
		return err
	}
	if err := errors.Join(rec.end(ctx, d, short), rec.hasBegun(ctx, long)); err != nil {
		return err
	}
	for _, step := range []struct {
		ask  statefs.Action
		wait time.Duration
	}{{statefs.Pause, patience}, {statefs.Resume, patience}, {statefs.Pause, 0}, {statefs.Cancel, 0}} {
		if err := rec.request(ctx, d, long, step.ask, step.wait); err != nil {
			return err
		}
	}
	items, err := rec.submit(ctx, d, "items")
	if err != nil {
		return err
	}
	return errors.Join(rec.end(ctx, d, long), rec.end(ctx, d, items))
}

// perform runs rounds of concurrent clients, and of one client alone; then it kills the daemon and repeats
// that with the next one. Operations that are paused or running at the kill remain until the end.
func (rec *recording) perform(t *testing.T, daemons, rounds int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for range daemons {
		d := rec.r.start()
		var clients sync.WaitGroup
		for range 3 {
			clients.Go(func() {
				for range rounds {
					if err := rec.round(ctx, d); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
		err := rec.round(ctx, d)
		held, err2 := rec.submit(ctx, d, "sleep")
		if err := errors.Join(err, err2); err != nil {
			t.Fatalf("%v\nthe daemon said: %s", err, d.stderr)
		}
		_, err = rec.submit(ctx, d, "sleep")
		must(t, errors.Join(err, rec.hasBegun(ctx, held), rec.request(ctx, d, held, statefs.Pause, patience)))
		d.kill()
	}
}
