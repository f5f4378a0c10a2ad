package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Masks of inotify(7).
const (
	inModify = unix.IN_MODIFY
	inDelete = unix.IN_DELETE
	inNames  = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE
)

// logLine is the line that everything writes: 64 bytes, of a kind that a job would write.
const logLine = "[ 17 / 999999 ] Processing 'a file with a name of some length!'\n"

// pieceLines are the lines of a piece of 64 KiB.
const pieceLines = 1024

// emit writes lines to w, so many with each write, once the gate has been opened.
func emit(w io.Writer, gate string, lines, each int) error {
	open, err := os.Open(gate) // returns when another process opens the other end
	if err != nil {
		return err
	}
	defer open.Close()
	return pour(w, nil, lines, each)
}

func pour(w io.Writer, flush func() error, lines, each int) error {
	piece := []byte(strings.Repeat(logLine, each))
	for done := 0; done < lines; done += each {
		if _, err := w.Write(piece); err != nil {
			return err
		}
		if flush == nil {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// startBare starts the process of the floors, and returns the base of its URLs.
func startBare(ctx context.Context) (*server, error) {
	var base string
	c, err := startRole(ctx, "bare", nil, &base)
	if err != nil {
		return nil, err
	}
	return &server{child: c, base: base}, nil
}

// playBare is an HTTP server that does the least for each answer.
func playBare(ctx context.Context, _ []byte) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for path, handle := range map[string]func(http.ResponseWriter, *http.Request, func() error) error{
		"/lines": bareLines, "/file": bareFile, "/idle": bareIdle, "/ticker": bareTicker, "/tail": bareTail,
		"/start": bareStart,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r, http.NewResponseController(w).Flush); err != nil && r.Context().Err() == nil {
				fmt.Fprintln(os.Stderr, "bare", path, err)
			}
		})
	}
	base, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	go answerHeap(stop)
	defer context.AfterFunc(ctx, func() {
		endRequests()
		_ = srv.Close() // the process ends
	})()
	say("http://" + l.Addr().String())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bareLines writes the bytes of a stream, each write flushed.
func bareLines(w http.ResponseWriter, r *http.Request, flush func() error) error {
	lines, err := strconv.Atoi(r.FormValue("lines"))
	each, err2 := strconv.Atoi(r.FormValue("each"))
	if err := errors.Join(err, err2, flush()); err != nil {
		return err
	}
	if gate := r.FormValue("gate"); gate != "" {
		open, err := os.Open(gate)
		if err != nil {
			return err
		}
		defer open.Close()
	}
	return pour(w, flush, lines, each)
}

// bareFile writes the bytes of a stream into a file, and sends what is there as soon as something is: what a stream
// that is a file costs at least.
func bareFile(w http.ResponseWriter, r *http.Request, flush func() error) error {
	lines, err := strconv.Atoi(r.FormValue("lines"))
	each, err2 := strconv.Atoi(r.FormValue("each"))
	if err := errors.Join(err, err2, flush()); err != nil {
		return err
	}
	path := r.FormValue("gate") + ".log"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer file.Close()
	defer func() { _ = os.Remove(path) }() // the folder goes at the end
	wake, written := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		written <- emit(waking{file, wake}, r.FormValue("gate"), lines, each)
	}()
	buf, at, end := make([]byte, 64<<10), int64(0), int64(lines*len(logLine))
	for at < end {
		n, err := file.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			<-wake
			continue
		}
		at += int64(n)
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return <-written
}

// waking is a file that says when it grew.
type waking struct {
	io.Writer
	wake chan struct{}
}

func (w waking) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return n, err
}

// bareIdle is a stream on which nothing happens.
func bareIdle(w http.ResponseWriter, r *http.Request, flush func() error) error {
	if err := begin(w, flush); err != nil {
		return err
	}
	<-r.Context().Done()
	return nil
}

// bareTicker is a stream that looks for news on a timer.
func bareTicker(w http.ResponseWriter, r *http.Request, flush func() error) error {
	if err := begin(w, flush); err != nil {
		return err
	}
	tick := time.NewTicker(pollWait)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		}
	}
}

func begin(w http.ResponseWriter, flush func() error) error {
	if _, err := io.WriteString(w, "<start_json>\n{}\n</start_json>\n<log>\n"); err != nil {
		return err
	}
	return flush()
}

// bareTail sends what is appended to a file: inotify, pread, write.
func bareTail(w http.ResponseWriter, r *http.Request, flush func() error) error {
	f, err := os.Open(r.FormValue("path"))
	if err != nil {
		return err
	}
	defer f.Close()
	wake := make(chan struct{}, 1)
	seen, err := watch(inModify, func(event) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}, f.Name())
	if err != nil {
		return err
	}
	defer seen.close()
	if err := begin(w, flush); err != nil {
		return err
	}
	buf, at := make([]byte, 64<<10), int64(0)
	for {
		select {
		case <-wake:
		case <-r.Context().Done():
			return nil
		}
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		at += int64(n)
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

// bareStart makes two files durable, and their folders, before it answers: the least that a durable start can do.
func bareStart(w http.ResponseWriter, r *http.Request, flush func() error) error {
	dir := r.FormValue("path")
	for _, folder := range []string{"one", "two"} {
		if err := putDurably(filepath.Join(dir, folder), r.FormValue("name")); err != nil {
			return err
		}
	}
	return begin(w, flush)
}

// putDurably writes a file of the size of a record, gives it its name, and syncs both.
func putDurably(dir, name string) error {
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 800))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	return errors.Join(err, syncFolder(dir))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// touch makes a file.
func touch(path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return fmt.Errorf("touch %s: %w", path, err)
	}
	return unix.Close(fd)
}
