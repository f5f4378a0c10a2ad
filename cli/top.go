package cli

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

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

type topOptions struct {
	once bool
	json bool
}

func (a *app) topCommand() *cobra.Command {
	var opts topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch lanes, what runs, and what waits and why",
		Long: `top shows lanes, running operations with their progress, and waiting ones with the reason, updated once a
second, until q or Ctrl-C. WAITED and WORKED are median and 99th percentile of the last minutes. The data comes from
the event stream and from counters: the operations are listed once, the newest two hundred of a state.

Without a terminal, and with --once or --json, it prints the screen once and ends.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.streams.Following(cmd.Context(), func(ctx context.Context) error { return a.top(ctx, conf, opts) })
		},
	}
	cmd.Flags().BoolVar(&opts.once, "once", false, "print one picture and end")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) top(ctx context.Context, conf *config.Loaded, opts topOptions) error {
	notes := &notes{}
	live := !opts.once && !opts.json && term.IsTerminal(a.streams.Out)
	if live {
		talk := a.streams.Err
		a.streams.Err = notes // the view shows notes about the connection
		defer func() { a.streams.Err = talk }()
	}
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	t := &top{client: c, model: newTopModel(time.Now())}
	if live {
		return a.topLive(ctx, t, notes)
	}
	if err := t.list(ctx); err != nil {
		return err
	}
	view, err := t.refresh(ctx)
	if err != nil {
		return err
	}
	if opts.json {
		return a.streams.JSON(map[string]any{"stats": view.stats, "running": t.model.busy(), "waiting": t.model.idle()})
	}
	return a.streams.Line("%s", strings.Join(view.lines(), "\n"))
}

// top is a view of one daemon.
type top struct {
	client *client.Client
	model  *topModel
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
func (t *top) refresh(ctx context.Context) (*topView, error) {
	stats, err := t.client.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &topView{address: t.client.Address(), now: time.Now(), stats: stats, model: t.model}, nil
}

// topLive draws until the user quits or the daemon stays unreachable.
func (a *app) topLive(ctx context.Context, t *top, notes *notes) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	screen, err := openScreen(a.streams.In, a.streams.Out)
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
			return endOfTop(ctx)
		}
	}
	if ctx.Err() != nil {
		return endOfTop(ctx)
	}
	return err
}

// endOfTop returns nil if the user quit.
func endOfTop(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, exit.ErrReaderGone) {
		return err
	}
	return nil
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
func (t *top) draw(ctx context.Context, screen *screen, notes *notes, last *topView) (*topView, error) {
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

// notes keeps the last line written to it.
type notes struct {
	mu   sync.Mutex
	line string
}

// Write implements io.Writer.
func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line = strings.TrimSpace(string(p))
	return len(p), nil
}

// last returns the current note: none once the daemon answers.
func (n *notes) last(err error) string {
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
