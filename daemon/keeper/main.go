package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

// Main runs the whole keeper process of a storage directory, the way a Pool expects of the program
// that it starts. It returns when it has nothing left to do: without commands and without a daemon
// for Options.Idle, or with its last command when a daemon has asked it to retire. When ctx ends, or
// with SIGTERM or SIGINT, it ends its commands first, each with its grace period; SIGHUP does
// nothing. The error wraps ErrReportsLost when the exit reports could not be written: the keeper
// retries for shutdownReportTimeout, or for orphanedReportTimeout when it was not asked to end.
//
// Main takes over the whole process: it becomes a subreaper, locks threads and reaps all children.
// The process must do nothing else.
func Main(ctx context.Context, options Options) error {
	// Keep the process small, because it lives long. Two processors: while one forks, which takes
	// until the program is executed, the other answers requests.
	if err := writeControlFile("/proc/self", "comm", "jobdir-keeper"); err != nil { // it was executed as /proc/self/exe
		return fmt.Errorf("name the process: %w", err)
	}
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // not ignored: commands would inherit that
	return newServer(options).run(ctx)
}

// announce prints the number of this keeper for the daemon that has started it, and turns to the
// keeper's own log.
func (s *server) announce() {
	said, err := json.Marshal(announcement{s.number})
	if err == nil {
		_, err = os.Stdout.Write(append(said, '\n'))
	}
	if err = errors.Join(err, redirect(filepath.Join(s.Dir, logName(s.number)))); err != nil {
		s.logger.Error("output not redirected", "error", err)
	}
	if err := releasePages(); err != nil {
		s.logger.Debug("pages of the program kept", "reason", err)
	}
}

// redirect sends standard output and standard error, including the stack trace of a crash, to the
// keeper's own log file, or to nowhere when that is not possible. The keeper must not hold the daemon's
// descriptors open: a program that reads the daemon's output waits for their end.
func redirect(path string) error {
	out, err := openLog(path, os.O_CREATE)
	if err != nil {
		var nullErr error
		if out, nullErr = os.OpenFile(os.DevNull, os.O_WRONLY, 0); nullErr != nil {
			return errors.Join(err, nullErr)
		}
	}
	fd := int(out.Fd())
	return errors.Join(err, unix.Dup3(fd, syscall.Stdout, 0), unix.Dup3(fd, syscall.Stderr, 0), out.Close())
}

// openLog opens a log for appending. It neither blocks on something else in its place, such as a fifo or a device, nor
// changes it.
func openLog(path string, flags int) (*os.File, error) {
	f, _, err := files.Regular(files.OpenFile(path, os.O_WRONLY|os.O_APPEND|flags))
	return f, err
}

// releasePages releases the resident pages of the program itself (madvise(2), MADV_DONTNEED). Most
// of them were needed only at its start, which initialises everything that a daemon has; a keeper
// lives long and uses little of it. Pages that are needed again come back from the page cache. Only
// mappings that cannot have been written to are released.
func releasePages() error {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-00a1b000 r-xp 00000000 08:01 131 /usr/bin/jobdir
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || strings.Contains(fields[1], "w") || strings.Join(fields[5:], " ") != program {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("read /proc/self/maps: %q: %w", fields[0], err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %s: %w", fields[0], errno)
		}
	}
	return nil
}
