// Package top is the terminal view of one daemon: its lanes, what runs, and what waits and why.
//
//	client.List, client.Events ──▶ model   the live operations
//	client.Stats ────────────────▶ view    one picture, as lines of text
//	                               screen  the terminal that shows them
package top

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

// top is a view of one daemon.
type top struct {
	client *client.Client
	model  *model
}

func newTop(c *client.Client) *top { return &top{client: c, model: newModel(time.Now())} }

// Print prints the picture of this moment, for people or as JSON.
func Print(ctx context.Context, c *client.Client, streams term.Streams, asJSON bool) error {
	t := newTop(c)
	if err := t.list(ctx); err != nil {
		return err
	}
	v, err := t.refresh(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return streams.JSON(map[string]any{"stats": v.stats, "running": t.model.busy(), "waiting": t.model.idle()})
	}
	return streams.Line("%s", strings.Join(v.lines(), "\n"))
}

// list fetches the operations: at the start, and again after events were lost.
func (t *top) list(ctx context.Context) error {
	var all []client.Operation
	for _, states := range []string{
		"running,paused,trailing", "failed_manual,waiting_approval",
		"queued,scheduled,failed_retryable",
	} {
		page, err := t.client.List(ctx, url.Values{"status": {states}, "limit": {"200"}})
		if err != nil {
			return err
		}
		all = append(all, page.Operations...)
	}
	t.model.list(all)
	return nil
}

// refresh fetches the data of a picture.
func (t *top) refresh(ctx context.Context) (*view, error) {
	stats, err := t.client.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &view{address: t.client.Address(), now: time.Now(), stats: stats, model: t.model}, nil
}

// Watch draws until the user quits or the daemon stays unreachable.
func Watch(ctx context.Context, c *client.Client, streams term.Streams, notes *Notes) error {
	t := newTop(c)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	screen, err := openScreen(streams.In, streams.Out)
	if err != nil {
		return err
	}
	defer screen.close()
	told := make(chan *client.Event)
	ended := make(chan error, 1)
	var following sync.WaitGroup
	following.Go(func() { ended <- forwardEvents(ctx, t.client, told) })
	defer following.Wait()
	defer stop()
	keys := make(chan byte)
	go screen.keys(ctx, keys) // it ends with the program: a read of a terminal cannot be cancelled
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	t.model.stale = true
	view, err := t.draw(ctx, screen, notes, nil)
	for err == nil {
		select {
		case e := <-told:
			t.model.take(e, time.Now())
		case <-tick.C:
			view, err = t.draw(ctx, screen, notes, view)
		case <-screen.resized:
			err = screen.show(view)
		case key := <-keys:
			if key == 'q' || key == 'Q' {
				return nil
			}
		case err = <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, exit.ErrReaderGone):
		return cause
	}
	return nil // the user quit
}

// forwardEvents sends events to the channel.
func forwardEvents(ctx context.Context, c *client.Client, told chan<- *client.Event) error {
	for e, err := range c.Events(ctx, nil) {
		if err != nil {
			return err
		}
		select {
		case told <- e:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// draw shows the current picture; while the daemon is unreachable, the last one with a note.
func (t *top) draw(ctx context.Context, screen *screen, notes *Notes, last *view) (*view, error) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	var err error
	if t.model.stale {
		err = t.list(ctx)
	}
	view := last
	if err == nil {
		view, err = t.refresh(ctx)
	}
	if err != nil && last == nil {
		return nil, err
	}
	if err != nil {
		away := *last
		view = &away
	}
	view.now, view.note, view.follows = time.Now(), notes.last(err), true
	return view, screen.show(view)
}

// Notes keeps the last line written to it.
type Notes struct {
	mu   sync.Mutex
	line string
}

// Write implements io.Writer.
func (n *Notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line = strings.TrimSpace(string(p))
	return len(p), nil
}

// last returns the current note: none once the daemon answers.
func (n *Notes) last(err error) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.line = ""
		return ""
	}
	if n.line != "" {
		return term.Printable(n.line)
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return term.Printable(refused.Message)
	}
	return "the daemon does not answer"
}
