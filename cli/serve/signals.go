package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/daemon"
)

// stopping is how signals end a daemon.
//
//	serving ──SIGINT, or SIGTERM with interrupt──► interrupting ──any──► all work is killed, exit 75
//	   │ ────SIGTERM with leave────────────────► leaving ───────any──► exit 75, commands go on
//	   └─────SIGTERM with wait──► waiting ──SIGINT─► interrupting
//	                                 └──────SIGTERM─► leaving
type stopping struct {
	ctx    context.Context //nolint:containedctx // what this is about
	drain  chan struct{}
	killed atomic.Bool // the work was killed; this process may see its end before it exits

	signals chan os.Signal
	closed  chan struct{}
	stop    context.CancelCauseFunc
	onTerm  config.OnStop
	logger  *slog.Logger
	kill    func() // kills all work and this process
}

// newStopping handles SIGINT and SIGTERM until close.
func newStopping(ctx context.Context, onTerm config.OnStop, logger *slog.Logger, kill func()) *stopping {
	e := &stopping{
		drain: make(chan struct{}, 1), signals: make(chan os.Signal, 4), closed: make(chan struct{}),
		onTerm: onTerm, logger: logger, kill: kill,
	}
	e.ctx, e.stop = context.WithCancelCause(ctx)
	if onTerm == config.StopLeave && os.Getpid() == 1 {
		e.onTerm = config.StopInterrupt // the kernel kills the rest of a container when its first process exits
	}
	signal.Notify(e.signals, os.Interrupt, syscall.SIGTERM)
	go e.run()
	return e
}

func (e *stopping) close() {
	signal.Stop(e.signals)
	close(e.closed)
	e.stop(nil)
}

func (e *stopping) run() {
	got, ok := e.next()
	if !ok {
		return
	}
	if got == syscall.SIGTERM && e.onTerm == config.StopWait {
		e.logger.Info("stopping when nothing runs any more: SIGTERM stops at once and leaves commands running, SIGINT interrupts them")
		e.drain <- struct{}{}
		if got, ok = e.next(); !ok {
			return
		}
	}
	if got == syscall.SIGTERM && e.onTerm != config.StopInterrupt {
		e.logger.Info("stopping: commands keep running and the next daemon adopts them; a second signal ends this process at once")
		e.stop(daemon.ErrDetach)
		if _, ok = e.next(); ok {
			os.Exit(exit.Temporary)
		}
		return
	}
	e.logger.Info("stopping: work is interrupted; a second signal ends it at once")
	e.stop(nil)
	if _, ok = e.next(); ok {
		e.killed.Store(true)
		e.kill()
	}
}

func (e *stopping) next() (os.Signal, bool) {
	select {
	case got := <-e.signals:
		return got, true
	case <-e.closed:
		return nil, false
	}
}
