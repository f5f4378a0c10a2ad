package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"time"

	"github.com/hibiken/asynq"
)

// redisQueue is asynq on a Redis that syncs every write before it answers.
type redisQueue struct {
	server    *process
	at        asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	worker    *asynq.Server
}

func startAsynq(ctx context.Context, dir string) (system, error) {
	p, socket, err := startRedis(ctx, dir, syncAlways)
	if err != nil {
		return nil, err
	}
	q := &redisQueue{server: p, at: asynq.RedisClientOpt{Network: "unix", Addr: socket, PoolSize: 200}}
	q.client, q.inspector = asynq.NewClient(q.at), asynq.NewInspector(q.at)
	return q, nil
}

func (q *redisQueue) submit(ctx context.Context, number int64) error {
	_, err := q.client.EnqueueContext(ctx, asynq.NewTask("noop", binary.BigEndian.AppendUint64(nil, uint64(number))))
	return err
}

func (q *redisQueue) work(_ context.Context, finished func(int64)) error {
	q.worker = asynq.NewServer(q.at, asynq.Config{Concurrency: workers, Logger: quiet{log.New(io.Discard, "", 0)}})
	return q.worker.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		finished(int64(binary.BigEndian.Uint64(t.Payload())))
		return nil
	}))
}

func (q *redisQueue) settle(ctx context.Context) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		info, err := q.inspector.GetQueueInfo("default")
		if err != nil || info.Pending+info.Active+info.Retry == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *redisQueue) stop() error {
	if q.worker != nil {
		q.worker.Shutdown()
	}
	return errors.Join(q.client.Close(), q.inspector.Close(), q.server.stop())
}

// quiet is a logger that says nothing.
type quiet struct{ *log.Logger }

func (q quiet) Debug(args ...any) { q.Print(args...) }
func (q quiet) Info(args ...any)  { q.Print(args...) }
func (q quiet) Warn(args ...any)  { q.Print(args...) }
func (q quiet) Error(args ...any) { q.Print(args...) }
