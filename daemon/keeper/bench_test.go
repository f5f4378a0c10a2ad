//go:build linux

package keeper

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func benchLog(b *testing.B) *os.File {
	b.Helper()
	log, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return log
}

// BenchmarkRun compares start and end of the smallest program with os/exec.
func BenchmarkRun(b *testing.B) {
	env := []string{"PATH=/usr/bin:/bin", "JOBDIR_ID=bench"}
	b.Run("exec", func(b *testing.B) {
		log := benchLog(b)
		for b.Loop() {
			c := exec.Command("/bin/true")
			c.Env, c.Stdout, c.Stderr = env, log, log
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, scan := range map[string]bool{"keeper": false, "keeper-scan": true} {
		b.Run(name, func(b *testing.B) {
			c := Command{Args: []string{"/bin/true"}, Env: env, Output: benchLog(b), Mark: env[1:], ScanOnExit: scan}
			for b.Loop() {
				p, err := Start(c)
				if err != nil {
					b.Fatal(err)
				}
				if e := p.Exit(); e.Err != nil {
					b.Fatal(e.Err)
				}
			}
		})
	}
}

func benchSleeper(b *testing.B) *Process {
	b.Helper()
	p, err := Start(Command{Args: []string{"/bin/sleep", "1000"}, Output: benchLog(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		p.End("benchmark")
		<-p.Done()
	})
	return p
}

func BenchmarkStopAndContinue(b *testing.B) {
	p := benchSleeper(b)
	for b.Loop() {
		if err := p.Stop(); err != nil {
			b.Fatal(err)
		}
		if err := p.Continue(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPool compares start and end of the smallest program through a keeper process with a bare
// loop of fork and exec; each command has a log file of its own.
func BenchmarkPool(b *testing.B) {
	dir := b.TempDir()
	for _, sub := range []string{"tmp", "operations/2025-11-26"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			b.Fatal(err)
		}
	}
	env := os.Environ()
	openLog := func(n int64) *os.File {
		log, err := os.OpenFile(fmt.Sprintf("%s/operations/2025-11-26/%d.log", dir, n),
			os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		if err != nil {
			b.Error(err)
		}
		return log
	}
	var n atomic.Int64
	b.Run("bare", func(b *testing.B) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			b.Fatal(err)
		}
		defer null.Close()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				log := openLog(n.Add(1))
				pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{
					Env: env, Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
				})
				log.Close()
				if err == nil {
					_, err = syscall.Wait4(pid, nil, 0, nil)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("keeper", func(b *testing.B) {
		p, err := Open(b.Context(), PoolOptions{
			Dir: dir, Executable: "/proc/self/exe",
			Program: program(dir, time.Millisecond, newestProtocol),
		})
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				key := Key{Operation: fmt.Sprintf("bench_%d", n.Add(1)), Run: 1}
				log := openLog(n.Add(1))
				r, err := p.Start(context.Background(), Command{
					Args: []string{"/bin/true"}, Env: env, Output: log, Key: key,
					Report: "operations/2025-11-26/" + key.Operation + ".exit",
				})
				log.Close()
				if err != nil {
					b.Error(err)
					return
				}
				if e := r.Exit(); e.Code != 0 {
					b.Errorf("exit %+v", e)
				}
				r.Acknowledge()
			}
		})
	})
}
