// Command outbox-s3 stores finished predictions in S3 and notes in an outbox that it did. It is run by jobdir, as [store.yaml](store.yaml) says,
// and needs nothing of it: what it prints is the log, and it can be stopped at any moment.
//
//	runner_db.runner_predictions ──▶ detection/{event_id}.json in a bucket ──▶ main_db.outbox: status "predicted"
//	  read, never written              stored before                            it is marked here
//
// What is to be done is what has no mark: the source is read in batches of ten behind the last _id, each batch is looked up in the outbox, and at
// the end it begins again. So it keeps no state of its own, any number of workers may run beside each other, and whatever happens between the object
// and the mark is mended by storing the same object under the same name once more.
//
// A lost connection holds up everything and is tried again every five seconds. What is wrong with one entry holds up that entry alone, and is said once.
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

// run returns the exit code. After SIGTERM or SIGINT it does not return: the process ends by that signal, so that whoever sent it sees that.
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
