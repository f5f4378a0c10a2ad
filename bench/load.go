package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The targets of section l: shares of the floor, the rate of lists beside that of single submits, and milliseconds at
// a steady rate.
const (
	loadClients    = 32
	loadLeast      = 0.7
	listSize       = 100
	listLeast      = 2
	steadyRate     = 200 // a second
	powerMost      = 2
	processMost    = 0.6
	durablePower   = "power"
	durableProcess = "process"
)

// loaded is one thing that is measured in turns: how many operations a second.
type loaded struct {
	name  string
	each  func() (rate float64, err error)
	rates []float64
}

// middle measures everything in turns, so that all see the same machine, and leaves in each the rates in order.
func middle(repeats int, all ...*loaded) error {
	for range repeats {
		for _, l := range all {
			rate, err := l.each()
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			l.rates = append(l.rates, rate)
		}
	}
	for _, l := range all {
		slices.Sort(l.rates)
	}
	return nil
}

func (l *loaded) rate() float64 { return l.rates[len(l.rates)/2] }

// measureLoad is section l.
func measureLoad(ctx context.Context, b *bench) (rows []Row, err error) {
	disk, done, err := b.onDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	for _, durability := range []string{durablePower, durableProcess} {
		more, err := disk.loadWith(ctx, durability)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	more, err := disk.peersRows(ctx)
	return append(rows, more...), err
}

// loadWith measures one durability.
func (b *bench) loadWith(ctx context.Context, durability string) (rows []Row, err error) {
	s, err := b.startLoad(ctx, "", durability)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	// as the daemon does it, and with a record before the start, as it does for work that is no handler's first run
	floors := make([]*server, 2)
	for i := range floors {
		if floors[i], err = b.startFloorTree(ctx, durability, i == 0); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, floors[i].child.stop()) }()
	}
	if err := b.warm(ctx, s, floors); err != nil {
		return nil, err
	}
	for _, clients := range []int{loadClients, 1} {
		count := b.counts.load
		if clients == 1 {
			count = max(count/10, 2)
		}
		more, err := b.finishedRows(ctx, s, floors, durability, clients, count)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	more, err := b.listRows(ctx, s, durability)
	rows = append(rows, more...)
	if err != nil {
		return rows, err
	}
	more, err = b.steadyRows(ctx, s, floors[0], durability)
	return append(rows, more...), err
}

// warm makes connections and what is made once.
func (b *bench) warm(ctx context.Context, s *server, floors []*server) error {
	feed := &feed{server: s}
	if _, err := feed.load(ctx, loadClients, 2*loadClients); err != nil {
		return err
	}
	for _, f := range floors {
		if _, err := call(ctx, http.MethodGet, f.base+"/loop?clients=32&count=64", ""); err != nil {
			return err
		}
	}
	return nil
}

// finishedRows measures operations from the first submit until all have ended. Each client submits its next
// operation after the answer to the last one.
func (b *bench) finishedRows(ctx context.Context, s *server, floors []*server, durability string, clients,
	count int,
) ([]Row, error) {
	f := &feed{server: s}
	if err := f.skip(ctx); err != nil {
		return nil, err
	}
	var accepted []float64
	ours := &loaded{name: "jobdir", each: func() (float64, error) {
		turn, err := f.load(ctx, clients, count)
		accepted = append(accepted, turn.accepted)
		return turn.finished, err
	}}
	over := make([]*loaded, len(floors))
	bare := make([]*loaded, len(floors))
	all := []*loaded{ours}
	for i, floor := range floors {
		over[i] = &loaded{
			name: "floor behind net/http",
			each: func() (float64, error) { return floor.throughHTTP(ctx, clients, count) },
		}
		bare[i] = &loaded{name: "floor", each: func() (float64, error) {
			began := time.Now()
			_, err := call(ctx, http.MethodGet, fmt.Sprintf("%s/loop?clients=%d&count=%d", floor.base, clients, count), "")
			return float64(count) / time.Since(began).Seconds(), err
		}}
		all = append(all, over[i], bare[i])
	}
	if err := middle(b.counts.repeats, all...); err != nil {
		return nil, err
	}
	slices.Sort(accepted)
	what := fmt.Sprintf("%s, %s: ", durability, manyClients(clients))
	var target *Target
	if clients == loadClients {
		target = leastOfFloor(loadLeast)
	}
	value := func(l *loaded) *float64 { v := l.rate(); return &v }
	return []Row{
		row(what+"submitted and finished; floor: the same file operations behind net/http", "1/s", ours.rate(),
			value(over[0]), target, count),
		row(what+"the same beside a floor without HTTP", "1/s", ours.rate(), value(bare[0]), nil, count),
		row(what+"the same beside a floor whose start writes a record, behind net/http", "1/s", ours.rate(),
			value(over[1]), nil, count),
		row(what+"the same beside that floor without HTTP", "1/s", ours.rate(), value(bare[1]), nil, count),
		row(what+"submits answered while the ones before are carried out", "1/s", accepted[len(accepted)/2], nil, nil, count),
	}, nil
}

func manyClients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

// throughHTTP has clients submit to a floor, and waits until everything has ended.
func (s *server) throughHTTP(ctx context.Context, clients, count int) (float64, error) {
	began := time.Now()
	err := atOnce(clients, count, func(int) error {
		_, err := call(ctx, http.MethodPost, s.base+"/submit", "{}")
		return err
	})
	if err == nil {
		_, err = call(ctx, http.MethodGet, s.base+"/await", "")
	}
	return float64(count) / time.Since(began).Seconds(), err
}

// feed reads the completion feed of a daemon.
type feed struct {
	server *server
	last   uint64
}

// loadRates is how many operations a second were accepted, and had ended.
type loadRates struct{ accepted, finished float64 }

// load submits operations, and reads the feed until all have ended.
func (f *feed) load(ctx context.Context, clients, count int) (t loadRates, err error) {
	began := time.Now()
	err = atOnce(clients, count, func(int) error {
		_, err := f.server.submit(ctx, "noop")
		return err
	})
	t.accepted = float64(count) / time.Since(began).Seconds()
	if err == nil {
		err = f.await(ctx, count)
	}
	t.finished = float64(count) / time.Since(began).Seconds()
	return t, err
}

// await reads the next so many ends.
func (f *feed) await(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*patience)
	defer cancel()
	for count > 0 {
		n, err := f.page(ctx, fmt.Sprintf("limit=%d&wait=30s", min(count, 200)))
		if err != nil {
			return err
		}
		count -= n
	}
	return nil
}

// skip reads all that is there.
func (f *feed) skip(ctx context.Context) error {
	for {
		if n, err := f.page(ctx, "limit=200"); err != nil || n == 0 {
			return err
		}
	}
}

func (f *feed) page(ctx context.Context, query string) (int, error) {
	data, err := call(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/finished?after=%d&%s", f.server.base, f.last, query), "")
	if err != nil {
		return 0, err
	}
	var page struct {
		Count int
		Last  uint64
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return 0, fmt.Errorf("the feed: %w", err)
	}
	f.last = max(f.last, page.Last)
	return page.Count, nil
}

// listRows compares lists of submits with single ones. What is submitted waits behind a full lane, so that nothing
// else is measured.
func (b *bench) listRows(ctx context.Context, s *server, durability string) (rows []Row, err error) {
	list := listOf("bench/gated", listSize)
	for _, clients := range []int{loadClients, 1} {
		count := b.counts.load
		if clients == 1 {
			count = max(count/10, 2)
		}
		lists := max(b.counts.load/listSize, 1)
		single := &loaded{name: "single submits", each: func() (float64, error) {
			began := time.Now()
			err := atOnce(clients, count, func(int) error { _, err := s.submit(ctx, "gated"); return err })
			return float64(count) / time.Since(began).Seconds(), err
		}}
		listed := &loaded{name: "lists", each: func() (float64, error) {
			began := time.Now()
			err := atOnce(min(clients, 4), lists, func(int) error {
				_, err := call(ctx, http.MethodPost, s.base+"/api/v1/operations", list)
				return err
			})
			return float64(lists*listSize) / time.Since(began).Seconds(), err
		}}
		if err := middle(b.counts.repeats, single, listed); err != nil {
			return rows, err
		}
		low := single.rate()
		rows = append(rows, row(fmt.Sprintf("%s: submits in lists of %d by %s; floor: single ones by %s", durability,
			listSize, manyClients(min(clients, 4)), manyClients(clients)),
			"1/s", listed.rate(), &low, leastOfFloor(listLeast), lists*listSize))
	}
	return rows, nil
}

// listOf is the body of a list of submits.
func listOf(job string, count int) string {
	one := fmt.Sprintf(`{"job":%q,"params":{}}`, job)
	return "[" + strings.Repeat(one+",", count-1) + one + "]"
}

// steadyRows submits at a rate that does not wait for answers, and measures from the moment at which a submit was due
// until its answer, which says that the operation has ended.
func (b *bench) steadyRows(ctx context.Context, s, floor *server, durability string) ([]Row, error) {
	count := steadyRate * b.counts.seconds
	low, err := steady(count, func() error {
		_, err := call(ctx, http.MethodPost, floor.base+"/whole", "{}")
		return err
	})
	if err != nil {
		return nil, err
	}
	took, err := steady(count, func() error {
		data, err := call(ctx, http.MethodPost, s.base+"/bench/noop?wait=30s", "{}")
		if err == nil && !strings.Contains(string(data), `"completed"`) {
			err = fmt.Errorf("the operation has not ended: %s", data)
		}
		return err
	})
	most := map[string]float64{durablePower: powerMost, durableProcess: processMost}[durability]
	return latencies(fmt.Sprintf("%s: submitted to finished at %d a second", durability, steadyRate),
		took, low, most, 0), err
}

func steady(count int, do func() error) (times, error) {
	took := make(times, count)
	errs := make([]error, count)
	var group sync.WaitGroup
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	for n := range count {
		due := began.Add(time.Duration(n) * time.Second / steadyRate)
		if err := sleepUntil(due); err != nil {
			return nil, err
		}
		group.Go(func() {
			errs[n] = do()
			took[n] = time.Since(due)
		})
	}
	group.Wait()
	return took, errors.Join(errs...)
}

// sleepUntil sleeps in the kernel, to a few dozen microseconds: a timer of the runtime waits in epoll_wait(2), which
// counts in milliseconds, and that would be in every time that is measured from when a request was due.
func sleepUntil(due time.Time) error {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		wait := unix.NsecToTimespec(left.Nanoseconds())
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &wait, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the next request: %w", err)
		}
	}
	return nil
}
