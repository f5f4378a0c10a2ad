package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main is the main function of a keeper process: it calls Serve the way a Pool expects of the
// program that it starts. It sets Options.Ready and Options.Logger. SIGTERM and SIGINT end all
// commands, each with its grace period, and then the keeper; SIGHUP does nothing.
func Main(ctx context.Context, options Options) error {
	// Keep the process small, because it lives long. Two processors: while one forks, which takes
	// until the program is executed, the other answers requests.
	if err := writeControlFile("/proc/self", "comm", "jobdir-keeper"); err != nil { // it was executed as /proc/self/exe
		return fmt.Errorf("name the process: %w", err)
	}
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case got := <-signals:
				if got != unix.SIGHUP {
					stop()
				}
			case <-done:
				return
			}
		}
	}()
	options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	options.Ready = func(number int) {
		said, err := json.Marshal(announcement{number})
		if err == nil {
			_, err = os.Stdout.Write(append(said, '\n'))
		}
		if err = errors.Join(err, redirect(filepath.Join(options.Dir, logName(number)))); err != nil {
			options.Logger.Error("output not redirected", "error", err)
		}
		if err := releasePages(); err != nil {
			options.Logger.Debug("pages of the program kept", "reason", err)
		}
	}
	return Serve(ctx, options)
}

// redirect sends standard output and standard error, including the stack trace of a crash, to the
// keeper's own log file, or to nowhere when that is not possible. The keeper must not hold the daemon's
// descriptors open: a program that reads the daemon's output waits for their end.
func redirect(path string) error {
	fd, err := openLog(path)
	if err != nil {
		var nullErr error
		if fd, nullErr = unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0); nullErr != nil {
			return errors.Join(err, fmt.Errorf("open %s: %w", os.DevNull, nullErr))
		}
	}
	return errors.Join(err, unix.Dup3(fd, syscall.Stdout, 0), unix.Dup3(fd, syscall.Stderr, 0), unix.Close(fd))
}

// openLog opens a log for appending. It neither blocks on something else in its place, such as a fifo or a device, nor
// changes it.
func openLog(path string) (int, error) {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(path, flags, 0o640)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("is not a regular file")
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o640) // the mode does not depend on the umask
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("open %s: %w", path, err), unix.Close(fd))
	}
	return fd, nil
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
