package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// bullmqQueue is BullMQ on a Redis. It is a library for node, so bullmq.mjs submits and works: it reads from its stdin
// what to submit, and writes to its stdout what is stored and what has finished.
type bullmqQueue struct {
	redis, node *process
	served      chan struct{} // closed when it is ready

	writing sync.Mutex // guards in
	in      io.Writer

	mu       sync.Mutex // guards the rest
	stored   map[int64]chan struct{}
	finished func(int64)
}

func startBullMQ(appendfsync string) func(context.Context, string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		redis, socket, err := startRedis(ctx, dir, appendfsync)
		if err != nil {
			return nil, err
		}
		q := &bullmqQueue{redis: redis, served: make(chan struct{}), stored: make(map[int64]chan struct{})}
		cmd := exec.Command("node", filepath.Join(filepath.Dir(self), "bullmq", "bullmq.mjs"), socket, strconv.Itoa(workers))
		// Pipes of our own: those of exec.Cmd are closed by Wait, which runs from the start.
		in, toNode, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, redis.stop())
		}
		fromNode, out, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, redis.stop())
		}
		cmd.Stdin, cmd.Stdout, q.in = in, out, toNode
		q.node, err = start(cmd)
		if err := errors.Join(err, in.Close(), out.Close()); err != nil {
			return nil, errors.Join(fmt.Errorf("start node (make bench-peers installs it): %w", err), redis.stop())
		}
		go q.listen(fromNode)
		err = q.node.ready(ctx, func(context.Context) error {
			select {
			case <-q.served:
				return nil
			default:
				return errors.New("it has not said that it is ready")
			}
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("BullMQ (make bench-peers installs it): %w", err), redis.stop())
		}
		return q, nil
	}
}

// listen reads the output of node until it ends.
func (q *bullmqQueue) listen(from io.ReadCloser) {
	defer from.Close()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if lines.Text() == "ready" {
			close(q.served)
			continue
		}
		what, word, _ := strings.Cut(lines.Text(), " ")
		var number int64
		if _, err := fmt.Sscan(word, &number); err != nil {
			fmt.Fprintf(os.Stderr, "peers: BullMQ said %q\n", lines.Text())
			continue
		}
		q.mu.Lock()
		if what == "stored" {
			close(q.stored[number])
			delete(q.stored, number)
		}
		finished := q.finished
		q.mu.Unlock()
		if what == "finished" {
			finished(number)
		}
	}
}

func (q *bullmqQueue) submit(ctx context.Context, number int64) error {
	stored := make(chan struct{})
	q.mu.Lock()
	q.stored[number] = stored
	q.mu.Unlock()
	q.writing.Lock()
	_, err := fmt.Fprintln(q.in, number)
	q.writing.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-stored:
		return nil
	case <-q.node.ended:
		return fmt.Errorf("node ended: %s", q.node.said.String())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *bullmqQueue) work(_ context.Context, finished func(int64)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finished = finished
	return nil
}

// settle has nothing to wait for: BullMQ says that an operation has finished when Redis has acknowledged it.
func (q *bullmqQueue) settle(context.Context) error { return nil }

func (q *bullmqQueue) stop() error { return errors.Join(q.node.stop(), q.redis.stop()) }
