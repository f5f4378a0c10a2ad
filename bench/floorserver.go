package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// floorArgument is the argument of the role floor.
type floorArgument struct {
	Dir    string
	Synced bool
	Lean   bool
}

// floorAnswer is the body of every answer.
type floorAnswer struct {
	ID  string
	Gap time.Duration
}

// floorServer does the file operations of operations, behind net/http or in a loop.
type floorServer struct {
	tree    *floorTree
	numbers atomic.Int64
	gap     atomic.Int64 // of the last call of next, in nanoseconds
	mu      sync.Mutex   // guards the rest
	begun   int
	ended   int
	failed  error
	changed chan struct{} // closed when ended or failed changes
}

func (b *bench) startFloorTree(ctx context.Context, durability string, lean bool) (*server, error) {
	dir, err := b.folder("floor")
	if err != nil {
		return nil, err
	}
	var base string
	c, err := startRole(ctx, "floor", floorArgument{Dir: dir, Synced: durability == "power", Lean: lean}, &base)
	if err != nil {
		return nil, err
	}
	return &server{child: c, base: base, storage: dir}, nil
}

func playFloor(ctx context.Context, argument []byte) (err error) {
	var a floorArgument
	if err := json.Unmarshal(argument, &a); err != nil {
		return err
	}
	f := &floorServer{changed: make(chan struct{})}
	if f.tree, err = newFloorTree(a.Dir, a.Synced, a.Lean); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.tree.close()) }()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for path, handle := range map[string]func(*http.Request) error{
		"/submit": f.submit, "/whole": f.whole, "/loop": f.loop, "/next": f.next, "/await": f.await,
		"/nothing": func(*http.Request) error { return nil },
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(floorAnswer{"floor", time.Duration(f.gap.Load())}) // the client notices
		})
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go answerHeap(stop)
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // the process ends
	say("http://" + l.Addr().String())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// one submits an operation and carries it out after that.
func (f *floorServer) one() error {
	id := fmt.Sprintf("bench-noop_2026-11-22_12-00-00_p4711_r%d", f.numbers.Add(1))
	if err := f.tree.submit(id); err != nil {
		return err
	}
	f.mu.Lock()
	f.begun++
	f.mu.Unlock()
	go func() {
		err := f.tree.start(id)
		if err == nil {
			err = f.tree.end(id)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ended++
		f.failed = errors.Join(f.failed, err)
		close(f.changed)
		f.changed = make(chan struct{})
	}()
	return nil
}

func (f *floorServer) submit(*http.Request) error { return f.one() }

// whole does all of an operation before it answers.
func (f *floorServer) whole(*http.Request) error {
	id := fmt.Sprintf("bench-noop_2026-11-22_12-00-00_p4711_r%d", f.numbers.Add(1))
	if err := f.tree.submit(id); err != nil {
		return err
	}
	if err := f.tree.start(id); err != nil {
		return err
	}
	return f.tree.end(id)
}

// next ends an operation and starts another one, as a lane with one place does.
func (f *floorServer) next(*http.Request) error {
	old, id := fmt.Sprintf("held-%d", f.numbers.Load()), fmt.Sprintf("held-%d", f.numbers.Add(1))
	if err := f.tree.submit(id); err != nil {
		return err
	}
	if old == "held-0" {
		return f.tree.start(id)
	}
	freed := time.Now() // everything from here on happens between two operations
	if err := f.tree.end(old); err != nil {
		return err
	}
	err := f.tree.start(id)
	f.gap.Store(int64(time.Since(freed)))
	return err
}

// loop makes operations without HTTP, and returns when all have ended.
func (f *floorServer) loop(r *http.Request) error {
	count, err := strconv.Atoi(r.FormValue("count"))
	clients, err2 := strconv.Atoi(r.FormValue("clients"))
	if err := errors.Join(err, err2, atOnce(clients, count, func(int) error { return f.one() })); err != nil {
		return err
	}
	return f.await(r)
}

// await returns when everything that was submitted has ended.
func (f *floorServer) await(r *http.Request) error {
	for {
		f.mu.Lock()
		left, failed, changed := f.begun-f.ended, f.failed, f.changed
		f.mu.Unlock()
		if failed != nil || left == 0 {
			return failed
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// atOnce calls do for 0 to count-1 from that many goroutines. Each goroutine makes its next call when its last
// one has returned.
func atOnce(goroutines, count int, do func(int) error) error {
	var next atomic.Int64
	errs := make([]error, goroutines)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for errs[g] == nil {
				n := int(next.Add(1)) - 1
				if n >= count {
					return
				}
				errs[g] = do(n)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
