package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkCreateToReady measures the time from the creation of a file until the consumer has its
// key.
func BenchmarkCreateToReady(b *testing.B) {
	dir := b.TempDir()
	d := openDir(b, dir, Options{})
	start(b, d)
	path := filepath.Join(dir, "op-a")
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := os.Symlink("nowhere", path); err != nil {
			b.Fatal(err)
		}
		takeKey(b, d, "op-a")
		times = append(times, time.Since(began))
		if err := os.Remove(path); err != nil {
			b.Fatal(err)
		}
		takeKey(b, d, "op-a")
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
}

func BenchmarkCheck(b *testing.B) {
	d := openDir(b, b.TempDir(), Options{})
	for b.Loop() {
		if err := d.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDrain measures the rate at which the reader empties a full queue.
func BenchmarkDrain(b *testing.B) {
	const pairs = 6000
	var drained time.Duration
	for b.Loop() {
		dir := b.TempDir()
		d := openDir(b, dir, Options{})
		for i := range pairs {
			name := filepath.Join(dir, fmt.Sprintf("op-%d", i))
			if os.Symlink("nowhere", name) != nil || os.Remove(name) != nil {
				b.Fatal("cannot make events")
			}
		}
		must(b, os.WriteFile(filepath.Join(dir, "op-last"), nil, 0o600))
		began := time.Now()
		stop := start(b, d)
		takeKey(b, d, "op-last")
		drained += time.Since(began)
		stop()
	}
	b.ReportMetric(2*pairs*float64(b.N)/drained.Seconds(), "events/s")
}

func BenchmarkSubscribe(b *testing.B) {
	const count = 5000
	dir := b.TempDir()
	for i := range count {
		write(b, filepath.Join(dir, fmt.Sprintf("%d.log", i)), "")
	}
	for name, paths := range map[string]int{"one path": 1, "5000 paths": count} {
		b.Run(name, func(b *testing.B) {
			var (
				heap int64
				took time.Duration
			)
			for b.Loop() {
				f := openFiles(b, Options{})
				stop := start(b, f)
				wakes := make([]chan struct{}, count)
				cancels := make([]func(), count)
				names := make([]string, count)
				for i := range count {
					wakes[i] = make(chan struct{}, 1)
					names[i] = filepath.Join(dir, fmt.Sprintf("%d.log", i%paths))
				}
				before := liveHeap()
				began := time.Now()
				for i := range count {
					cancels[i], _ = f.Subscribe(names[i], wakes[i])
				}
				took += time.Since(began)
				heap = liveHeap() - before
				if stats := statsOf(f); stats.Subscribers != count || stats.Paths != paths {
					b.Fatalf("stats %+v", stats)
				}
				for _, cancel := range cancels {
					cancel()
				}
				stop()
				runtime.KeepAlive(names)
				runtime.KeepAlive(wakes)
			}
			b.ReportMetric(float64(heap)/count, "heap-B/subscriber")
			b.ReportMetric(float64(took.Microseconds())/float64(b.N)/count, "us/subscribe")
		})
	}
}

func liveHeap() int64 {
	for range 3 { // objects with a finalizer are freed in the second collection
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// BenchmarkWake measures the time from a written line until the last of 5,000 subscribers is awake.
func BenchmarkWake(b *testing.B) {
	const count = 5000
	f := openFiles(b, Options{})
	start(b, f)
	path := newLog(b)
	wakes := make([]chan struct{}, count)
	for i := range wakes {
		wakes[i], _ = subscribe(b, f, path)
	}
	writer, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(b, err)
	defer writer.Close()
	for b.Loop() {
		if _, err := writer.WriteString("line\n"); err != nil {
			b.Fatal(err)
		}
		for _, wake := range wakes {
			<-wake
		}
	}
}
