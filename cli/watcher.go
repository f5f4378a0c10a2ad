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

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// watcher follows one operation for a person who may press Ctrl-C.
type watcher struct {
	app     *app
	client  *client.Client
	id      statefs.ID
	signals chan os.Signal
	output  sync.Mutex // held while a question is open, so that the log does not run over it
	answers chan string
	shown   shown
	// rest returns when the operation has ended or waits for a person; nil when nobody minds waiting for one.
	rest func(context.Context, statefs.ID) (*client.Operation, error)
}

// shown counts the bytes of the log that were written, for whoever waits for a number of them.
type shown struct {
	mu    sync.Mutex
	bytes int64
	until int64
	there chan struct{} // closed when until is reached; nil while nobody waits
}

func (s *shown) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(n)
	if s.there != nil && s.bytes >= s.until {
		close(s.there)
		s.there = nil
	}
}

// reach returns a channel that is closed when so many bytes were written. It is called once.
func (s *shown) reach(bytes int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(chan struct{})
	if s.bytes >= bytes {
		close(there)
		return there
	}
	s.there, s.until = there, bytes
	return there
}

// receiver writes the log to w, or with raw the whole stream, and counts.
func (w *watcher) receiver(to io.Writer, raw bool) stream.Receiver {
	out := stream.Receiver{Log: func(text []byte) error {
		_, err := to.Write(text)
		return err
	}}
	if raw {
		composer := stream.NewComposer(to)
		out = stream.Receiver{Header: composer.Header, Log: composer.Log, Footer: composer.Footer}
	}
	write := out.Log
	out.Log = func(text []byte) error {
		err := write(text)
		w.shown.add(len(text))
		return err
	}
	return out
}

// gate is a writer that waits while a question is open.
type gate struct {
	to   io.Writer
	lock *sync.Mutex
}

func (w *watcher) gate(to io.Writer) io.Writer { return &gate{to: to, lock: &w.output} }

func (g *gate) Write(p []byte) (int, error) {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.to.Write(p)
}

type followed struct {
	footer *client.Footer
	err    error
}

// errLeft says that the person leaves and the operation does not end.
var errLeft error = &codeError{code: exitTemporary}

// watch follows until the operation ends or the person leaves.
func (w *watcher) watch(ctx context.Context, follow func(context.Context) (*client.Footer, error)) (*client.Footer, error) {
	followCtx, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	ended := make(chan followed, 1)
	wait.Go(func() {
		footer, err := follow(followCtx)
		ended <- followed{footer, err}
	})
	persons := make(chan *client.Operation, 1)
	if w.rest != nil {
		wait.Go(func() {
			if op, err := w.rest(followCtx, w.id); err == nil && op.WaitsForPerson() {
				persons <- op
			}
		})
	}
	for {
		select {
		case op := <-persons:
			select { // the log says it first, and nothing comes after it
			case f := <-ended:
				return f.footer, f.err
			case <-w.shown.reach(op.LogBytes):
			case s := <-w.signals:
				w.signals <- s
			}
			stop()
			<-ended
			w.app.streams.say("%s", personLine(op))
			return nil, &codeError{code: exitPerson}
		case f := <-ended:
			return f.footer, f.err
		case s := <-w.signals:
			if s != os.Interrupt || !w.app.streams.interactive() {
				stop()
				return w.leave(<-ended)
			}
			f, err := w.ask(ctx, ended)
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

// ask puts the question, and returns what ended while it was open, or an error when the person leaves, or neither.
func (w *watcher) ask(ctx context.Context, ended <-chan followed) (*followed, error) {
	w.output.Lock()
	defer w.output.Unlock()
	// A terminal that is gone is noticed when the answer is read.
	_, _ = fmt.Fprintf(w.app.streams.Err, "\njobdir: %s: [c]ancel it, [l]eave it running, [Enter] go on watching? ", w.id)
	select {
	case f := <-ended:
		_, _ = fmt.Fprintln(w.app.streams.Err)
		return &f, nil
	case <-w.signals:
		_, _ = fmt.Fprintln(w.app.streams.Err)
		return nil, errLeft
	case answer, ok := <-w.line():
		switch {
		case !ok, strings.HasPrefix(strings.ToLower(answer), "l"):
			return nil, errLeft
		case strings.HasPrefix(strings.ToLower(answer), "c"):
			return nil, w.cancel(ctx)
		}
		w.app.streams.say("still watching")
		return nil, nil
	}
}

// line returns the channel of lines that are typed; it is closed at the end of the input.
func (w *watcher) line() <-chan string {
	if w.answers != nil {
		return w.answers
	}
	w.answers = make(chan string)
	// Reading from a terminal cannot be called off, so nobody waits for this goroutine: it ends with the program.
	go func() {
		defer close(w.answers)
		lines := bufio.NewScanner(w.app.streams.In)
		for lines.Scan() {
			w.answers <- strings.TrimSpace(lines.Text())
		}
	}()
	return w.answers
}

func (w *watcher) cancel(ctx context.Context) error {
	_, err := w.client.Request(ctx, w.id, statefs.Cancel, 0)
	if refused, ok := errors.AsType[*client.Error](err); ok && exitCodeOfStatus(refused.Status) == exitNotFound {
		return nil // it has ended meanwhile, and its footer is on the way
	}
	if err == nil {
		w.app.streams.say("cancel requested")
	}
	return err
}

// leave says how to come back, below the last line of the log: last is how following ended, after which nothing is written. An
// operation that ended in this moment is not left.
func (w *watcher) leave(last followed) (*client.Footer, error) {
	if last.footer != nil {
		return last.footer, last.err
	}
	w.app.streams.say("%s is left running: 'jobdir logs -f %s' follows it, 'jobdir cancel %s' ends it", w.id, w.id, w.id)
	return nil, errLeft
}
