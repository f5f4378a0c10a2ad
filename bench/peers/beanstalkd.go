package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkQueue is beanstalkd, in which a connection waits for its answer before its next request.
type beanstalkQueue struct {
	server *process
	socket string
	free   chan *beanstalk.Conn // connections for submits

	workers  []*beanstalk.Conn
	group    sync.WaitGroup
	stopping atomic.Bool
}

// In beanstalkd, 0 is the most urgent priority. A worker that does not answer for that long loses its operation.
const (
	someUrgency = 1024
	timeToRun   = 10 * time.Minute
)

// startBeanstalkd starts it with arguments, in which DIR is its folder; without any it stores nothing.
func startBeanstalkd(args ...string) func(context.Context, string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) {
		socket, err := socketIn(dir)
		if err != nil {
			return nil, err
		}
		all := []string{"-l", "unix:" + socket}
		for _, arg := range args {
			if arg == "DIR" {
				arg = dir
			}
			all = append(all, arg)
		}
		p, err := start(exec.Command("beanstalkd", all...))
		if err != nil {
			return nil, fmt.Errorf("start beanstalkd (make bench-peers installs it): %w", err)
		}
		q := &beanstalkQueue{server: p, socket: socket, free: make(chan *beanstalk.Conn, workers)}
		if err := p.ready(ctx, connects(socket)); err != nil {
			return nil, err
		}
		for range workers {
			c, err := beanstalk.Dial("unix", socket)
			if err != nil {
				return nil, errors.Join(err, q.stop())
			}
			q.free <- c
		}
		return q, nil
	}
}

func (q *beanstalkQueue) submit(ctx context.Context, number int64) error {
	select {
	case c := <-q.free:
		defer func() { q.free <- c }()
		_, err := c.Put(binary.BigEndian.AppendUint64(nil, uint64(number)), someUrgency, 0, timeToRun)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *beanstalkQueue) work(_ context.Context, finished func(int64)) error {
	for range workers {
		c, err := beanstalk.Dial("unix", q.socket)
		if err != nil {
			return err
		}
		q.workers = append(q.workers, c)
		q.group.Go(func() {
			for {
				id, body, err := c.Reserve(time.Hour)
				if err == nil {
					err = c.Delete(id)
				}
				if err != nil {
					if !q.stopping.Load() {
						fmt.Fprintln(os.Stderr, "peers: beanstalkd:", err)
					}
					return
				}
				finished(int64(binary.BigEndian.Uint64(body)))
			}
		})
	}
	return nil
}

// settle has nothing to wait for: an operation has finished when beanstalkd has acknowledged that it is deleted.
func (q *beanstalkQueue) settle(context.Context) error { return nil }

func (q *beanstalkQueue) stop() error {
	q.stopping.Store(true)
	err := q.server.stop() // the connections end with it
	q.group.Wait()
	for _, c := range q.workers {
		_ = c.Close() // the server is gone
	}
	for len(q.free) > 0 {
		_ = (<-q.free).Close() // the same
	}
	return err
}
