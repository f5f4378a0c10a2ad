// Feed is a consumer of the completion feed: it learns of the end of every operation exactly once, without asking for
// a single one, and whatever is killed in between, the daemon or itself.
//
//	feed -server unix:storage/jobdir.sock -ledger ends.ndjson
//
// The feed gives every end a number, in order, and waits when there is none yet. Exactly once takes one thing of the
// consumer: what it does with an end and the number that it has come to become durable together. Here both are one
// line of a file, the ledger; in a database they are one transaction. Where what is done cannot be part of that, such
// as a mail, it has to be harmless to do it again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/client"
)

func main() {
	server := flag.String("server", "unix:storage/jobdir.sock", "address of the daemon")
	path := flag.String("ledger", "ends.ndjson", "file with a line for each end")
	once := flag.Bool("once", false, "end when every end that there is was seen, instead of waiting for the next one")
	flag.Parse()
	if err := run(*server, *path, *once); err != nil {
		fmt.Fprintln(os.Stderr, "feed:", err)
		os.Exit(1)
	}
}

func run(server, path string, once bool) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := client.New(server)
	if err != nil {
		return err
	}
	defer c.Close()
	book, err := openLedger(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	wait := 30 * time.Second
	if once {
		wait = 0
	}
	err = follow(ctx, c, book, wait, once)
	if ctx.Err() != nil {
		return nil // interrupted by a signal; the next run continues with the next end
	}
	return err
}

// follow writes down end after end. The daemon may come and go.
func follow(ctx context.Context, c *client.Client, book *ledger, wait time.Duration, once bool) error {
	delay := firstDelay
	for {
		ends, last, err := c.Finished(ctx, book.last, wait)
		switch {
		case err == nil:
			delay = firstDelay
			if err := book.write(ends, last); err != nil {
				return err
			}
			if once && len(ends) == 0 {
				return nil
			}
		case ctx.Err() != nil || !away(err):
			return err
		default:
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return ctx.Err()
			}
			delay = min(2*delay, lastDelay)
		}
	}
}

const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// away reports whether the daemon is not there, or not ready, and will be: asking again repeats nothing, because the
// number says where to go on.
func away(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return !ok || refused.Status == http.StatusServiceUnavailable
}
