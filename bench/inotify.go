package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
