package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type list []string

func (l *list) String() string { return strings.Join(*l, ", ") }

func (l *list) Set(v string) error {
	*l = append(*l, v)
	return nil
}

type job struct {
	onTerm                       string
	env, progress, child, daemon list
	stdin, stderr, count, hang   bool
	lines, bytes, signal, exit   int
	result, tell, until          string
}

func main() {
	var j job
	flag.StringVar(&j.onTerm, "on-term", "", "ignore, or an exit code")
	flag.Var(&j.env, "env", "print this variable")
	flag.BoolVar(&j.stdin, "stdin", false, "read standard input")
	flag.IntVar(&j.lines, "lines", 0, "number of lines to print")
	flag.BoolVar(&j.stderr, "stderr", false, "print every other line to standard error")
	flag.IntVar(&j.bytes, "bytes", 0, "number of bytes to print")
	flag.Var(&j.progress, "progress", "line for $JOBDIR_PROGRESS")
	flag.StringVar(&j.result, "result", "", "text for $JOBDIR_RESULT")
	flag.Var(&j.child, "child", "flags of a child in the same group")
	flag.Var(&j.daemon, "daemon", "flags of a daemon")
	flag.StringVar(&j.tell, "tell", "", "FIFO that gets the process number")
	flag.BoolVar(&j.count, "count", false, "print lines until ended")
	flag.StringVar(&j.until, "until", "", "FIFO to wait for")
	flag.BoolVar(&j.hang, "hang", false, "block until ended")
	flag.IntVar(&j.signal, "signal", 0, "signal to send to itself")
	flag.IntVar(&j.exit, "exit", 0, "exit code")
	between := flag.Bool("between", false, "start the daemon and exit (the middle process of -daemon)")
	flag.Parse()

	if *between {
		check(spawn(flag.Args(), true))
		return
	}
	check(j.run())
	os.Exit(j.exit)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakejob:", err)
		os.Exit(99)
	}
}

func (j *job) run() error {
	for _, step := range []func() error{j.catchTerm, j.print, j.report, j.spawnAll, j.ready, j.block, j.die} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) catchTerm() error {
	switch j.onTerm {
	case "":
		return nil
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		return nil
	}
	code, err := strconv.Atoi(j.onTerm)
	if err != nil {
		return fmt.Errorf("-on-term: %w", err)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		<-terminated
		fmt.Println("terminated")
		os.Exit(code)
	}()
	return nil
}

func (j *job) print() error {
	for _, name := range j.env {
		if v, ok := os.LookupEnv(name); ok {
			fmt.Printf("%s=%s\n", name, v)
		} else {
			fmt.Println(name, "unset")
		}
	}
	if j.stdin {
		n, err := io.Copy(io.Discard, os.Stdin)
		if err != nil {
			return err
		}
		fmt.Println("stdin", n, "bytes")
	}
	for i := range j.lines {
		out := os.Stdout
		if j.stderr && i%2 == 1 {
			out = os.Stderr
		}
		if _, err := fmt.Fprintln(out, "line", i+1); err != nil {
			return err
		}
	}
	line := append(bytes.Repeat([]byte{'x'}, 63), '\n')
	for left := j.bytes; left > 0; left -= len(line) {
		if _, err := os.Stdout.Write(line[max(0, len(line)-left):]); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) report() error {
	for _, line := range j.progress {
		f, err := os.OpenFile(os.Getenv("JOBDIR_PROGRESS"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, line)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if j.result == "" {
		return nil
	}
	return os.WriteFile(os.Getenv("JOBDIR_RESULT"), []byte(j.result), 0o640)
}

func (j *job) spawnAll() error {
	for _, flags := range j.child {
		if err := spawn(strings.Fields(flags), false); err != nil {
			return err
		}
	}
	for _, flags := range j.daemon {
		if err := spawn(append([]string{"-between", "--"}, strings.Fields(flags)...), true); err != nil {
			return err
		}
	}
	return nil
}

// spawn starts this program again, without waiting for it; session: as leader of a session of its own.
func spawn(args []string, session bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	argv := append([]string{os.Args[0]}, args...)
	child, err := os.StartProcess(self, argv, &os.ProcAttr{ //nolint:gosec // it starts itself, with flags of the test that started it
		Files: []*os.File{null, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: session},
	})
	if err != nil {
		return err
	}
	return child.Release()
}

func (j *job) ready() error {
	if j.tell == "" {
		return nil
	}
	f, err := os.OpenFile(j.tell, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, os.Getpid())
	return err
}

func (j *job) block() error {
	if j.count {
		n := 0
		for range time.Tick(time.Millisecond) {
			n++
			if _, err := fmt.Println("count", n); err != nil {
				return err
			}
		}
	}
	if j.until != "" {
		f, err := os.Open(j.until)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	if j.hang {
		forever()
	}
	return nil
}

func (j *job) die() error {
	if j.signal == 0 {
		return nil
	}
	if err := syscall.Kill(os.Getpid(), syscall.Signal(j.signal)); err != nil {
		return err
	}
	forever() // the signal is on its way, or stops this process, or is ignored
	return nil
}

// forever does not return. To the runtime an empty select would be a deadlock, a timer is not.
func forever() { <-time.After(math.MaxInt64) }
