package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// renamer is the floor of control: a process in which one thread blocks in read(2) on inotify and renames a file as
// soon as another one is made. durably puts a record, synced with its folder, before the rename, as an end must.
type renamer struct {
	*child
	dir   string
	seen  *watcher
	count int
}

// renaming is the argument of the role renamer.
type renaming struct {
	Dir     string
	Durably bool
}

func (b *bench) startRenamer(ctx context.Context, durably bool) (*renamer, error) {
	dir, err := b.folder("floor")
	if err != nil {
		return nil, err
	}
	r := &renamer{dir: dir}
	if err := errors.Join(touch(filepath.Join(dir, "op.running")), os.Mkdir(filepath.Join(dir, "records"),
		0o750)); err != nil {
		return nil, fmt.Errorf("start the renamer: %w", err)
	}
	if r.seen, err = watch(unix.IN_MOVED_TO, nil, dir); err != nil {
		return nil, err
	}
	var ready bool
	if r.child, err = startRole(ctx, "renamer", renaming{dir, durably}, &ready); err != nil {
		r.seen.close()
		return nil, err
	}
	return r, nil
}

func (r *renamer) stop() error {
	r.seen.close()
	return r.child.stop()
}

// round makes one file and returns how long it took until the other one had its new name.
func (r *renamer) round(ctx context.Context) (time.Duration, error) {
	r.count++
	path := filepath.Join(r.dir, fmt.Sprintf("request-%d", r.count))
	began := time.Now()
	if err := touch(path); err != nil {
		return 0, err
	}
	e, err := r.seen.await(ctx, "the renamer", func(event) bool { return true })
	return e.at.Sub(began), err
}

func playRenamer(ctx context.Context, argument []byte) error {
	var o renaming
	if err := json.Unmarshal(argument, &o); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go answerHeap(stop)
	var failed error // by the watcher's thread, read when it has ended
	states := [2]string{filepath.Join(o.Dir, "op.running"), filepath.Join(o.Dir, "op.paused")}
	w, err := watch(unix.IN_CREATE, func(e event) {
		if o.Durably {
			failed = errors.Join(failed, putDurably(filepath.Join(o.Dir, "records"), e.name))
		}
		failed = errors.Join(failed, unix.Rename(states[0], states[1]))
		states[0], states[1] = states[1], states[0]
	}, o.Dir)
	if err != nil {
		return err
	}
	say(true)
	<-ctx.Done()
	w.close()
	return failed
}
