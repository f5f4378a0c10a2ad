package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/journal"
)

// commitSize is about what one change of an operation takes in the journal.
const commitSize = 1 << 10

// diskBlock is a multiple of the block size of all usual disks and file systems.
const diskBlock = 4096

// measureCommits is section j.
func measureCommits(ctx context.Context, b *bench) (rows []Row, err error) {
	disk, done, err := b.onDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	for _, size := range []int{commitSize, 12 * commitSize, 64 * commitSize} {
		more, err := disk.syncedWrites(size)
		if rows = append(rows, more...); err != nil {
			return rows, err
		}
	}
	more, err := disk.groupCommits(ctx)
	return append(rows, more...), err
}

// syncedWriter makes writes durable in one way.
type syncedWriter struct {
	name   string
	flags  int // to open the file
	length int64
	file   *os.File
	write  func(f *os.File, data []byte, at int64) error
	stride int64
	at     int64
	took   times
}

// syncedWrites writes in three ways to written files, and with fdatasync to a file that grows, in turn.
func (b *bench) syncedWrites(size int) (rows []Row, err error) {
	blocks := int64(size+diskBlock-1) / diskBlock * diskBlock
	// O_DIRECT demands memory at the start of a page.
	aligned, err := unix.Mmap(-1, 0, int(blocks), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(aligned)) }()
	length := int64(b.counts.rounds) * blocks
	floor := &syncedWriter{name: "fdatasync", length: length, write: writeThenSync, stride: int64(size)}
	ways := []*syncedWriter{
		floor,
		{
			name: "RWF_DSYNC", length: length, stride: int64(size),
			write: func(f *os.File, data []byte, at int64) error { return files.WriteAt(f, data, at, true) },
		},
		{
			name: "O_DIRECT and O_DSYNC", flags: unix.O_DIRECT | unix.O_DSYNC, length: length, stride: blocks,
			write: func(f *os.File, _ []byte, at int64) error {
				_, err := f.WriteAt(aligned, at)
				return err
			},
		},
		{name: "fdatasync of a file that grows", write: writeThenSync, stride: int64(size)},
	}
	for i, w := range ways {
		if w.file, err = writtenFile(filepath.Join(b.temp, fmt.Sprintf("way-%d", i)), w.length, w.flags); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.file.Close()) }()
	}
	data := make([]byte, size)
	for range b.counts.rounds {
		for _, w := range ways {
			began := time.Now()
			if err := w.write(w.file, data, w.at); err != nil {
				return nil, err
			}
			w.took = append(w.took, time.Since(began))
			w.at += w.stride
		}
	}
	for _, w := range ways[1:] {
		rows = append(rows, latencies(fmt.Sprintf("one write of %d KiB, %s; floor: %s", size/1024, w.name, floor.name),
			w.took, floor.took, 0, 0)...)
	}
	return rows, nil
}

func writeThenSync(f *os.File, data []byte, at int64) error {
	if _, err := f.WriteAt(data, at); err != nil {
		return err
	}
	return files.WithDescriptor(f, unix.Fdatasync)
}

// writtenFile makes a file of zeros that are on the disk, and opens it with the flags.
func writtenFile(path string, size int64, flags int) (*os.File, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, size))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|flags, 0)
}

// groupCommits measures the journal itself: one caller and many, each of whom waits for its commit, with as many
// processors of the runtime as cores and with one more, since a blocked sync holds one for a moment.
func (b *bench) groupCommits(ctx context.Context) (rows []Row, err error) {
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	bare, err := b.bareCommits()
	if err != nil {
		return nil, err
	}
	for _, callers := range []int{1, 32} {
		for extra := range 2 {
			runtime.GOMAXPROCS(runtime.NumCPU() + extra)
			var rates []float64
			for turn := range b.counts.repeats {
				rate, err := b.commitRate(ctx, callers, fmt.Sprintf("journal-%d-%d-%d", callers, extra, turn))
				if err != nil {
					return rows, err
				}
				rates = append(rates, rate)
			}
			rows = append(rows, row(fmt.Sprintf("commits of 1 KiB to the journal, %d callers, GOMAXPROCS cores + %d; floor: writes "+
				"one by one with RWF_DSYNC", callers, extra), "1/s", medianOf(rates), &bare, nil, b.counts.repeats*b.counts.load))
		}
	}
	return rows, nil
}

func (b *bench) bareCommits() (rate float64, err error) {
	f, err := writtenFile(filepath.Join(b.temp, "bare"), int64(b.counts.load)*commitSize, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, began := make([]byte, commitSize), time.Now()
	for i := range b.counts.load {
		if err := files.WriteAt(f, data, int64(i)*commitSize, true); err != nil {
			return 0, err
		}
	}
	return float64(b.counts.load) / time.Since(began).Seconds(), nil
}

func (b *bench) commitRate(ctx context.Context, callers int, name string) (rate float64, err error) {
	folder, err := b.folder(name)
	if err != nil {
		return 0, err
	}
	r, err := journal.NewReader(folder)
	if err != nil {
		return 0, err
	}
	j, err := journal.Open(r, 0, journal.Options{Durable: true})
	if err != nil {
		return 0, errors.Join(err, r.Close())
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- j.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, r.Close())
	}()
	entry := make([]byte, commitSize)
	if err := j.Append(entry).Wait(ctx); err != nil { // it makes the first segments
		return 0, err
	}
	var all sync.WaitGroup
	errs := make(chan error, callers)
	began := time.Now()
	for range callers {
		all.Go(func() {
			for range b.counts.load / callers {
				if err := j.Append(entry).Wait(ctx); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	close(errs)
	return float64(b.counts.load/callers*callers) / took.Seconds(), <-errs
}
