package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `serve runs the daemon of a storage directory until SIGINT or SIGTERM: then no new operation is accepted and
streams end. After SIGINT (Ctrl-C) work is interrupted and goes back into the queue. After SIGTERM commands keep
running, and the next daemon adopts them; --on-stop changes that: interrupt does what SIGINT does, wait starts nothing
new and waits until nothing runs; the next daemon takes the submits of that time. A second signal ends the daemon at
once. SIGHUP reads the job definitions again; they are also read when a file in their folders changes.

A line on stderr reports when it serves. Exit codes: 71 the address is in use, 73 another daemon has the storage.`,
		Example: "  jobdir serve --jobs jobs-example --storage ./storage",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), conf)
		},
	}
	addSettingFlags(cmd.Flags(), false)
	return cmd
}

func (a *app) serve(ctx context.Context, conf *loaded) error {
	config := ServeConfig{
		Storage: conf.Storage, Listen: conf.Listen, Jobs: conf.Jobs,
		Definitions: a.options.Definitions, Handlers: a.options.Handlers,
		Keeper:     []string{os.Args[0], "keeper", "--storage", conf.Storage, "--durability", string(conf.Durability)},
		Durability: conf.Durability, GroupControl: conf.GroupControl, Grace: conf.Grace, StallAfter: conf.StallAfter,
		SweepInterval: conf.SweepInterval, IdempotencyAge: conf.IdempotencyAge, Retention: conf.Retention,
		Events: conf.Events, CrashLimit: conf.CrashLimit,
		Lanes: conf.Lanes, Limits: conf.Limits, Ageing: conf.Ageing, MaxQueued: conf.MaxQueued,
		OutboxWorkers: conf.OutboxWorkers, OutboxPerTarget: conf.OutboxPerTarget,
		Insecure: conf.Insecure, Hosts: conf.Hosts,
		Logger: newLogger(a.streams.Err, conf.LogFormat, conf.LogLevel),
	}
	var err error
	if config.WebhookAllow, err = outbox.ParseAllow(conf.WebhookAllow...); err != nil {
		return err
	}
	if conf.TokenFile != "" {
		tokens, warning, err := readTokens(conf.TokenFile)
		if err != nil {
			return err
		}
		if warning != "" {
			config.Logger.Warn("token file is not safe", "reason", warning)
		}
		config.Tokens = tokens
	}
	notifier, err := newNotifier(ctx, config.Logger)
	if err != nil {
		return err
	}
	defer notifier.close()
	config.Serving = func(s Serving) {
		defer settleMemory()
		if len(s.Addresses) == 0 {
			s.Addresses = []string{unixPrefix + s.Socket}
		}
		defer notifier.serving(s, fmt.Sprintf("serving %s, %s", strings.Join(s.Addresses, " and "),
			term.Plural(s.Jobs, "job", "jobs")))
		if conf.LogFormat == "json" {
			config.Logger.Info("serving", "addresses", s.Addresses, "storage", s.Storage, "jobs", s.Jobs, "pid", os.Getpid(),
				"exposed", s.Exposed, "hosts", s.Hosts)
			return
		}
		a.streams.Notice("serving %s, storage %s, %s", strings.Join(s.Addresses, " and "), s.Storage,
			term.Plural(s.Jobs, "job", "jobs"))
		if s.Exposed {
			names := append([]string{"localhost"}, s.Hosts...)
			a.streams.Notice("other machines can reach it: a URL may name an address of this machine or %s; --hosts allows further names", strings.Join(names, " or "))
		}
	}

	prepareMemory()
	stopping := newStopping(ctx, conf.OnStop, config.Logger, func() { killAndExit(config.Storage) }) //nolint:contextcheck // what ends the work at once must not end with ctx
	defer stopping.close()
	notifier.stopping(stopping.ctx) //nolint:contextcheck // it descends from ctx
	config.Drain = stopping.drain
	if os.Getpid() == 1 {
		// The first process of a container is the parent of every orphan, for example of processes left by a
		// dead keeper.
		reaping, stop := context.WithCancel(ctx)
		reaped := make(chan struct{})
		go func() {
			defer close(reaped)
			keeper.ReapOrphans(reaping)
		}()
		defer func() {
			stop()
			<-reaped
		}()
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	config.Reload = hangups
	err = Serve(stopping.ctx, config) //nolint:contextcheck // it descends from ctx
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
