package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsVariable makes this program the NATS server, with its data in the folder that is its value.
const natsVariable = "PEERS_NATS"

// serveNATS is a NATS server that syncs every message before it answers.
func serveNATS(dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: true,
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("the NATS server does not serve")
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)
	// The name appears with its content.
	temp, url := filepath.Join(dir, "url.tmp"), filepath.Join(dir, "url")
	if err := errors.Join(os.WriteFile(temp, []byte(s.ClientURL()), 0o640), os.Rename(temp, url)); err != nil {
		return err
	}
	<-stopped
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// natsQueue is a stream from which each message is taken once.
type natsQueue struct {
	server *process
	conn   *nats.Conn
	stream jetstream.JetStream
	queue  jetstream.Consumer

	taking jetstream.ConsumeContext
	group  sync.WaitGroup
	turns  chan jetstream.Msg
}

func startNATS(ctx context.Context, dir string) (system, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), natsVariable+"="+dir)
	p, err := start(cmd)
	if err != nil {
		return nil, err
	}
	q := &natsQueue{server: p}
	err = p.ready(ctx, func(context.Context) error {
		url, err := os.ReadFile(filepath.Join(dir, "url"))
		if err == nil {
			q.conn, err = nats.Connect(strings.TrimSpace(string(url)))
		}
		return err
	})
	if err == nil {
		q.stream, err = jetstream.New(q.conn)
	}
	if err != nil {
		return nil, err
	}
	if _, err := q.stream.CreateStream(ctx, jetstream.StreamConfig{
		Name: "work", Subjects: []string{"work"}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		return nil, fmt.Errorf("make the stream: %w", err)
	}
	q.queue, err = q.stream.CreateConsumer(ctx, "work", jetstream.ConsumerConfig{
		Durable:   "workers",
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10 * workers,
	})
	return q, err
}

func (q *natsQueue) submit(ctx context.Context, number int64) error {
	_, err := q.stream.Publish(ctx, "work", binary.BigEndian.AppendUint64(nil, uint64(number)))
	return err
}

func (q *natsQueue) work(ctx context.Context, finished func(int64)) (err error) {
	q.turns = make(chan jetstream.Msg)
	for range workers {
		q.group.Go(func() {
			for m := range q.turns {
				// Finished is what the server has acknowledged: it has removed the message.
				if err := m.DoubleAck(ctx); err != nil {
					fmt.Fprintln(os.Stderr, "peers: acknowledge:", err)
					continue
				}
				finished(int64(binary.BigEndian.Uint64(m.Data())))
			}
		})
	}
	q.taking, err = q.queue.Consume(func(m jetstream.Msg) { q.turns <- m })
	return err
}

func (q *natsQueue) settle(context.Context) error { return nil }

func (q *natsQueue) stop() error {
	if q.taking != nil {
		q.taking.Stop()
		<-q.taking.Closed()
		close(q.turns)
		q.group.Wait()
	}
	q.conn.Close()
	return q.server.stop()
}
