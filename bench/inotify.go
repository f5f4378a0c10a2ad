package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// event is one name of a watched folder, or a watched file, and when its event was read.
type event struct {
	at   time.Time
	from string // the path that is watched
	name string
	mask uint32
}

// watcher is inotify without anything between: one thread blocks in read(2) and takes the time when it returns. It is
// the observer of every latency of files, for the value and for the floor.
type watcher struct {
	fd      int
	paths   map[int32]string
	events  chan event
	handle  func(event) // called by the reading thread instead of sending, if not nil
	closing atomic.Bool
	done    chan struct{}
}

// watch begins to watch paths with the same mask. With a handle the events go there, and not to the channel.
func watch(mask uint32, handle func(event), paths ...string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open inotify: %w", err)
	}
	w := &watcher{
		fd: fd, paths: make(map[int32]string), events: make(chan event, 1<<16), handle: handle,
		done: make(chan struct{}),
	}
	for _, path := range paths {
		wd, err := unix.InotifyAddWatch(fd, path, mask)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", path, err), unix.Close(fd))
		}
		w.paths[int32(wd)] = path
	}
	go w.run()
	return w, nil
}

func (w *watcher) run() {
	defer close(w.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || w.closing.Load() {
			return
		}
		w.split(buf[:n], time.Now())
	}
}

// split reads the events of inotify(7): descriptor, mask, cookie and length of the name, four bytes each.
func (w *watcher) split(buf []byte, at time.Time) {
	for len(buf) >= unix.SizeofInotifyEvent {
		size := int(binary.NativeEndian.Uint32(buf[12:]))
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
		e := event{
			at: at, from: w.paths[int32(binary.NativeEndian.Uint32(buf))],
			mask: binary.NativeEndian.Uint32(buf[4:]), name: string(name),
		}
		buf = buf[unix.SizeofInotifyEvent+size:]
		if w.handle != nil {
			w.handle(e)
			continue
		}
		select {
		case w.events <- e:
		default: // full: no observer keeps up with that many events
		}
	}
}

// await returns the next event that fits.
func (w *watcher) await(ctx context.Context, what string, fits func(event) bool) (event, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case e := <-w.events:
			if fits(e) {
				return e, nil
			}
		case <-w.done:
			return event{}, fmt.Errorf("wait for %s: the watcher has ended", what)
		case <-late.C:
			return event{}, fmt.Errorf("wait for %s: nothing happened for %s", what, patience)
		case <-ctx.Done():
			return event{}, context.Cause(ctx)
		}
	}
}

// patience is how long a thing that happens in milliseconds may take before the run is given up.
const patience = 30 * time.Second

// drain forgets the events that have come.
func (w *watcher) drain() {
	for {
		select {
		case <-w.events:
		default:
			return
		}
	}
}

// close ends the reading thread: removing a watch makes an event of its own, which wakes it.
func (w *watcher) close() {
	w.closing.Store(true)
	for wd := range w.paths {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // a folder that is gone has made that event already
	}
	<-w.done
	_ = unix.Close(w.fd) // nothing was written to it
}

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
