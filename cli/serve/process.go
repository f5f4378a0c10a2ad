package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// Process runs the daemon as the whole process: with the settings of conf, the handlers and definitions of own, the
// signals of a person and the protocol of a service manager. It returns when the daemon has stopped.
func Process(ctx context.Context, conf *config.Config, own Config, version string, streams term.Streams) error {
	own.Storage, own.Listen, own.Jobs = conf.Storage, conf.Listen, conf.Jobs
	own.Durability, own.GroupControl = conf.Durability, conf.GroupControl
	own.Commit.Method, own.Commit.SegmentSize = conf.Commit.Method, conf.Commit.SegmentSize
	own.Keeper = []string{os.Args[0], "keeper", "--storage", conf.Storage, "--durability", string(conf.Durability)}
	own.Access, own.Work, own.Upkeep, own.Queue, own.Outbox = conf.Access, conf.Work, conf.Upkeep, conf.Queue, conf.Outbox
	own.Logger = newLogger(streams.Err, conf.LogFormat, conf.LogLevel)
	if conf.TokenFile != "" {
		tokens, warning, err := config.ReadTokens(conf.TokenFile)
		if err != nil {
			return err
		}
		if warning != "" {
			own.Logger.Warn("token file is not safe", "reason", warning)
		}
		own.Tokens = tokens
	}
	notifier, err := newNotifier(ctx, own.Logger)
	if err != nil {
		return err
	}
	defer notifier.close()
	own.Serving = func(s Serving) {
		defer settleMemory()
		if len(s.Addresses) == 0 {
			s.Addresses = []string{config.UnixPrefix + s.Socket}
		}
		defer notifier.serving(s, fmt.Sprintf("serving %s, %s", strings.Join(s.Addresses, " and "),
			term.Plural(s.Jobs, "job", "jobs")))
		if conf.LogFormat == "json" {
			own.Logger.Info("serving", "addresses", s.Addresses, "storage", s.Storage, "jobs", s.Jobs, "pid", os.Getpid(),
				"exposed", s.Exposed, "hosts", s.Hosts)
			return
		}
		streams.Notice("serving %s, storage %s, %s", strings.Join(s.Addresses, " and "), s.Storage,
			term.Plural(s.Jobs, "job", "jobs"))
		if s.Exposed {
			names := append([]string{"localhost"}, s.Hosts...)
			streams.Notice("other machines can reach it: a URL may name an address of this machine or %s; --hosts allows further names", strings.Join(names, " or "))
		}
	}

	prepareMemory()
	stopping := newStopping(ctx, conf.OnStop, own.Logger, func() { killAndExit(own.Storage) }) //nolint:contextcheck // what ends the work at once must not end with ctx
	defer stopping.close()
	notifier.stopping(stopping.ctx) //nolint:contextcheck // it descends from ctx
	own.Drain = stopping.drain
	if os.Getpid() == 1 {
		// The first process of a container is the parent of every orphan, for example of processes left by a
		// dead keeper.
		reaping, stop := context.WithCancel(ctx)
		var reaper sync.WaitGroup
		reaper.Go(func() { keeper.ReapOrphans(reaping) })
		defer reaper.Wait()
		defer stop()
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	own.Reload = hangups
	err = Run(stopping.ctx, own, version) //nolint:contextcheck // it descends from ctx
	if err != nil || !stopping.killed.Load() {
		return err
	}
	return exit.With(exit.Temporary)
}

// prepareMemory raises the GC target for the start. Reading the live operations makes much garbage at once,
// and collecting it takes a fifth of the time. Embedding programs, and users who set GOGC, decide for
// themselves.
func prepareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// settleMemory lowers the GC target after the start. Waiting operations are many small long-lived objects,
// and little else is allocated from then on. Half the usual garbage headroom costs no measurable time. It
// also returns the memory of the start to the system.
func settleMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
		debug.FreeOSMemory()
	}
}

// killAndExit kills every process of the storage and ends this one. The next daemon restarts the operations.
func killAndExit(storage string) {
	if mark, err := statefs.MarkOf(storage); err == nil && mark != "" {
		// It ends with this process at the latest.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, _ = keeper.EndStrays(ctx, mark, time.Millisecond) // the next start finds leftovers
		cancel()
	}
	os.Exit(exit.Temporary)
}

// newLogger makes the daemon's logger from two settings that are already checked.
func newLogger(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // it is one of the levels
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Build identifies this program exactly: two builds of one version have different files.
func Build(version string) string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return version
	}
	return fmt.Sprintf("%s %d %d", version, info.Size(), info.ModTime().UnixNano())
}
