package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/stream"
)

// watcher follows one operation for a person who may press Ctrl-C.
type watcher struct {
	streams term.Streams
	client  *client.Client
	id      statefs.ID
	signals chan os.Signal
	to      io.Writer  // receives the log
	output  sync.Mutex // held while a question is open, so that the log does not overwrite it
	answers chan string
	written atomic.Int64  // bytes of the log
	wrote   chan struct{} // one value after bytes were written
}

// receiver writes the log, or with raw the whole stream, and counts bytes.
func (w *watcher) receiver(raw bool) stream.Receiver {
	out := stream.Receiver{Log: func(text []byte) error {
		_, err := w.Write(text)
		return err
	}}
	if raw {
		composer := stream.NewComposer(w)
		out = stream.Receiver{Header: composer.Header, Log: composer.Log, Footer: composer.Footer}
	}
	write := out.Log
	out.Log = func(text []byte) error {
		err := write(text)
		w.written.Add(int64(len(text)))
		notify.Wake(w.wrote)
		return err
	}
	return out
}

// Write writes to the receiver of the log, after an open question.
func (w *watcher) Write(p []byte) (int, error) {
	w.output.Lock()
	defer w.output.Unlock()
	return w.to.Write(p)
}

type followResult struct {
	footer *client.Footer
	err    error
}

// errLeft means that the user detached while the operation continues.
var errLeft error = exit.With(exit.Temporary)

// watch follows the operation until it ends or the user detaches.
func (w *watcher) watch(ctx context.Context, follow func(context.Context) (*client.Footer,
	error),
) (*client.Footer, error) {
	followCtx, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	ended := make(chan followResult, 1)
	wait.Go(func() {
		footer, err := follow(followCtx)
		ended <- followResult{footer, err}
	})
	persons := make(chan *client.Operation, 1)
	wait.Go(func() {
		if op, err := w.client.WaitSettled(followCtx, w.id); err == nil && op.WaitsForPerson() {
			persons <- op
		}
	})
	var waiting *client.Operation // for a person; the log up to this point is printed first
	for {
		if waiting != nil && w.written.Load() >= waiting.LogBytes {
			stop()
			<-ended
			w.streams.Notice("%s", personLine(waiting))
			return nil, exit.With(exit.Person)
		}
		select {
		case waiting = <-persons:
		case <-w.wrote:
		case f := <-ended:
			return f.footer, f.err
		case s := <-w.signals:
			if waiting != nil {
				waiting.LogBytes = 0 // the rest of the log is left out
				continue
			}
			if s != os.Interrupt || !w.streams.Interactive() {
				stop()
				return w.leave(<-ended)
			}
			f, err := w.prompt(ctx, ended)
			switch {
			case f != nil:
				return f.footer, f.err
			case errors.Is(err, errLeft):
				stop()
				return w.leave(<-ended)
			case err != nil:
				return nil, err
			}
		}
	}
}

// prompt asks the question. It returns the result if the operation ended before the answer, an error
// if the user detaches, or neither.
func (w *watcher) prompt(ctx context.Context, ended <-chan followResult) (*followResult, error) {
	w.output.Lock()
	defer w.output.Unlock()
	// A terminal that is gone is noticed when the answer is read.
	_, _ = fmt.Fprintf(w.streams.Err, "\njobdir: %s: [c]ancel it, [l]eave it running, [Enter] keep watching? ", w.id)
	select {
	case f := <-ended:
		_, _ = fmt.Fprintln(w.streams.Err)
		return &f, nil
	case <-w.signals:
		_, _ = fmt.Fprintln(w.streams.Err)
		return nil, errLeft
	case answer, ok := <-w.line():
		switch {
		case !ok, strings.HasPrefix(strings.ToLower(answer), "l"):
			return nil, errLeft
		case strings.HasPrefix(strings.ToLower(answer), "c"):
			return nil, w.cancel(ctx)
		}
		w.streams.Notice("still watching")
		return nil, nil
	}
}

// line returns the channel of typed lines; it is closed at the end of the input.
func (w *watcher) line() <-chan string {
	if w.answers != nil {
		return w.answers
	}
	w.answers = make(chan string)
	// A read of a terminal cannot be cancelled, so this goroutine ends with the program.
	go func() {
		defer close(w.answers)
		lines := bufio.NewScanner(w.streams.In)
		for lines.Scan() {
			w.answers <- strings.TrimSpace(lines.Text())
		}
	}()
	return w.answers
}

func (w *watcher) cancel(ctx context.Context) error {
	_, err := w.client.Request(ctx, w.id, statefs.Cancel, 0)
	if refused, ok := errors.AsType[*client.Error](err); ok && exit.CodeOfStatus(refused.Status) == exit.NotFound {
		return nil // the operation has ended and its footer will arrive
	}
	if err == nil {
		w.streams.Notice("cancel requested")
	}
	return err
}

// leave explains how to reattach, below the last line of the log. last is the result of following, after
// which nothing more is written. If the operation has just ended, leave returns its footer.
func (w *watcher) leave(last followResult) (*client.Footer, error) {
	if last.footer != nil {
		return last.footer, last.err
	}
	w.streams.Notice("%s is left running: 'jobdir logs -f %s' follows it, 'jobdir cancel %s' ends it", w.id, w.id,
		w.id)
	return nil, errLeft
}
