//go:build linux

package keeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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

// BenchmarkRun compares the start and end of the smallest program with what os/exec needs for it.
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
