// Peers measures other job queues as bench measures jobdir: operations without work, submitted by many
// clients and finished.
//
//	bench -peers PROGRAM ──starts──▶ peers ──starts──▶ redis-server, node, postgres, beanstalkd,
//	                                                   nats-server (this program)
//	      ◀──one line of JSON for each system──
//
// It is a separate module, so that building jobdir does not fetch its libraries. Each server is private: a
// folder below -dir, a unix socket or a port of the loopback, stopped after its measurement. PostgreSQL
// refuses to run as root and then runs as the user postgres.
//
// The comparison: a submit is complete when the system reports that it is stored and synced to the disk; then
// the client continues. An operation is finished when the system has stored its end. If a system does not
// report that (asynq), the return of the handler counts for a single operation, and the system's own count
// for many. Clients and workers are in one process, without HTTP between them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// workers is how many operations each system may carry out at once.
const workers = 100

// peer is a system that is measured.
type peer struct {
	name       string
	durability string // of ours beside it: power when it syncs before it answers, else process
	mark       bool   // no target, a mark beyond it
	// start starts it with its data in dir.
	start func(ctx context.Context, dir string) (system, error)
}

// system is a running system. It calls finished once for each operation, with its number.
type system interface {
	// submit returns when the operation is stored.
	submit(ctx context.Context, number int64) error
	// work begins to carry out operations.
	work(ctx context.Context, finished func(number int64)) error
	// settle returns when the system has stored the end of all that were submitted.
	settle(ctx context.Context) error
	stop() error
}

type options struct {
	dir, only                              string
	list                                   bool
	count, clients, rate, seconds, repeats int
}

func main() {
	if dir := os.Getenv(natsVariable); dir != "" {
		exit(serveNATS(dir))
	}
	var o options
	flag.StringVar(&o.dir, "dir", "", "folder for the data of the servers; a temporary one when empty")
	flag.IntVar(&o.count, "count", 3000, "operations of a turn")
	flag.IntVar(&o.clients, "clients", 32, "clients at once")
	flag.IntVar(&o.rate, "rate", 200, "submits a second while the time of each is measured")
	flag.IntVar(&o.seconds, "seconds", 10, "how long that is")
	flag.IntVar(&o.repeats, "repeats", 3, "turns; the median counts")
	flag.StringVar(&o.only, "only", "", "name of the one system to measure; all when empty")
	flag.BoolVar(&o.list, "list", false, "print the names of the systems with the durability of ours beside each, as JSON, and measure nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, o)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The durabilities of ours.
const (
	durablePower   = "power"
	durableProcess = "process"
)

// peers are what is measured.
var peers = []peer{
	{"asynq on Redis, appendfsync always", durablePower, false, startAsynq},
	{"BullMQ on Redis, appendfsync always", durablePower, false, startBullMQ(syncAlways)},
	{"NATS JetStream, sync always", durablePower, false, startNATS},
	{"River on PostgreSQL, defaults", durablePower, false, startRiver(0)},
	{"River on PostgreSQL, fetch cooldown 1 ms", durablePower, true, startRiver(time.Millisecond)},
	{"beanstalkd, each write synced", durablePower, false, startBeanstalkd("-b", "DIR", "-f0")},
	{"BullMQ on Redis, appendfsync everysec", durableProcess, true, startBullMQ(syncEverysec)},
	{"beanstalkd, synced each 50 ms", durableProcess, true, startBeanstalkd("-b", "DIR")},
	{"beanstalkd, in memory", durableProcess, true, startBeanstalkd()},
}

func measure(ctx context.Context, o options) (err error) {
	if o.list {
		type listed struct{ Name, Durability string }
		var all []listed
		for _, p := range peers {
			all = append(all, listed{p.name, p.durability})
		}
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "jobdir-peers-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	// The user postgres has to get through to its folder.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	for i, p := range peers {
		if o.only != "" && o.only != p.name {
			continue
		}
		own := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(own, 0o711); err != nil {
			return err
		}
		if err := p.measure(ctx, o, own); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (p peer) measure(ctx context.Context, o options, dir string) (err error) {
	s, err := p.start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	m := &meter{due: make(map[int64]time.Time)}
	if err := s.work(ctx, m.finished); err != nil {
		return err
	}
	if _, err := m.load(ctx, s, o.clients, 2*o.clients); err != nil { // what is made once
		return err
	}
	var rates []float64
	for range o.repeats {
		rate, err := m.load(ctx, s, o.clients, o.count)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	slices.Sort(rates)
	took, err := m.steady(ctx, s, o.rate, o.seconds)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(struct {
		Name           string
		Rate, P50, P99 float64
		Mark           bool
	}{p.name, rates[len(rates)/2], at(took, 0.5), at(took, 0.99), p.mark})
}

func at(took []time.Duration, share float64) float64 {
	slices.Sort(took)
	return float64(took[min(int(share*float64(len(took))), len(took)-1)]) / float64(time.Millisecond)
}

// meter counts what has finished, and how long it took.
type meter struct {
	numbers atomic.Int64
	mu      sync.Mutex // guards the rest
	left    int
	all     chan struct{} // closed when nothing is left
	due     map[int64]time.Time
	took    []time.Duration
}

func (m *meter) expect(count int) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.all = count, make(chan struct{})
	return m.all
}

func (m *meter) finished(number int64) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if due, ok := m.due[number]; ok {
		m.took = append(m.took, now.Sub(due))
		delete(m.due, number)
	}
	if m.left--; m.left == 0 {
		close(m.all)
	}
}

// load submits from clients that go on when their operation is stored, and returns how many a second had finished.
func (m *meter) load(ctx context.Context, s system, clients, count int) (float64, error) {
	all := m.expect(count)
	errs := make([]error, clients)
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for c := range clients {
		group.Go(func() {
			for errs[c] == nil && next.Add(1) <= int64(count) {
				errs[c] = s.submit(ctx, m.numbers.Add(1))
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	if err := await(ctx, all); err != nil {
		return 0, err
	}
	err := s.settle(ctx)
	return float64(count) / time.Since(began).Seconds(), err
}

// steady submits at a rate that waits for nothing.
func (m *meter) steady(ctx context.Context, s system, rate, seconds int) ([]time.Duration, error) {
	count := rate * seconds
	all := m.expect(count)
	errs := make([]error, count)
	var group sync.WaitGroup
	began := time.Now()
	for n := range count {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
		<-time.After(time.Until(due))
		number := m.numbers.Add(1)
		m.mu.Lock()
		m.due[number] = due
		m.mu.Unlock()
		group.Go(func() { errs[n] = s.submit(ctx, number) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	err := await(ctx, all)
	return m.took, err
}

func await(ctx context.Context, all chan struct{}) error {
	late := time.NewTimer(5 * time.Minute)
	defer late.Stop()
	select {
	case <-all:
		return nil
	case <-late.C:
		return errors.New("what was submitted did not finish within 5 minutes")
	case <-ctx.Done():
		return ctx.Err()
	}
}
