// Command outbox-s3 stores finished predictions in S3 and marks them in an outbox. jobdir runs it with
// [store.yaml](store.yaml), but it does not depend on jobdir: its output is the log, and it can be stopped at
// any moment.
//
//	runner_db.runner_predictions ──▶ detection/{event_id}.json in a bucket ──▶ main_db.outbox: status "predicted"
//	  read, never written              stored before                            it is marked here
//
// Work is every entry without a mark: the program reads the source in batches of ten in order of _id, looks
// up each batch in the outbox, and starts again at the end. So it keeps no state of its own, and any number
// of workers may run at the same time. A crash between the object and the mark is repaired by storing the
// same object under the same name again.
//
// A lost connection blocks everything and is retried every five seconds. An error of one entry blocks only
// that entry, and is logged once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, as sysexits has them where it does.
const (
	exitLeft   = 1  // mode once: entries are left that a person has to see to
	exitAgain  = 75 // try again later
	exitConfig = 78 // the settings are wrong
)

// names are those of the signals that stop it.
var names = map[os.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT"}

func main() {
	os.Exit(run(os.Args[1:]))
}

// run returns the exit code. After SIGTERM or SIGINT it does not return: the process ends by that signal, so
// that the sender sees it in the wait status.
func run(args []string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	s, err := readSettings(args, os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox-s3:", err)
		return exitConfig
	}
	out := newReport(os.Stdout, os.Getenv("JOBDIR_PROGRESS"), s.secrets())
	w, err := connect(s, out)
	if err != nil {
		out.line("ERROR: %v", err)
		var temporary interface{ Temporary() bool }
		if errors.As(err, &temporary) && temporary.Temporary() {
			return exitAgain
		}
		return exitConfig
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var got os.Signal
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case got = <-signals:
			out.line("Stopping: %s.", names[got])
			stop()
		case <-ctx.Done():
		}
	}()
	work := w.follow
	if s.mode == modeOnce {
		work = w.once
	}
	work(ctx)
	stop()
	<-heard
	w.disconnect()
	out.end(os.Getenv("JOBDIR_RESULT"), w.left())
	if number, ok := got.(syscall.Signal); ok {
		signal.Reset(number)
		_ = syscall.Kill(os.Getpid(), number) // its own process, which is always there
		select {}
	}
	if s.mode == modeOnce && w.left().some() {
		return exitLeft
	}
	return 0
}
