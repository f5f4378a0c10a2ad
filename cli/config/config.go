// Package config reads the settings: [settings] is their table, with the default of each. The flags, the variables of
// the environment, the keys of jobdir.yaml, 'jobdir config' and docs/settings.md are made from it.
//
// A flag precedes a variable, a variable the file, and the file the default.
package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Config holds the settings. An embedding program gives the same groups to cli.Serve.
type Config struct {
	Listen       []string
	Storage      string
	Jobs         []string
	Durability   statefs.Durability
	Commit       statefs.CommitOptions
	GroupControl bool
	OnStop       OnStop
	TokenFile    string
	LogFormat    string
	LogLevel     string
	Access       Access
	Work         Work
	Upkeep       Upkeep
	Queue        Queue
	Outbox       Outbox
}

// Access is who may reach the daemon.
type Access struct {
	// Insecure allows addresses other than the loopback without tokens.
	Insecure bool
	// Hosts are names under which browsers may reach the daemon, besides those of the loopback.
	Hosts []string
}

// Work is what applies to running work.
type Work struct {
	// Grace is the time between SIGTERM and SIGKILL; default 10 s.
	Grace time.Duration
	// StallAfter is the time without a sign of life after which work counts as stalled, for jobs that do not
	// set it; default 0, never.
	StallAfter time.Duration
	// CrashLimit is how often a command may crash, for jobs that do not set it; default 5 times within 10
	// minutes.
	CrashLimit catalog.CrashLimit
}

// Upkeep is what the storage keeps, and how often it is swept.
type Upkeep struct {
	// SweepInterval is the time between two sweeps; default 1 min.
	SweepInterval time.Duration
	// IdempotencyAge is how long an Idempotency-Key refers to its operation; default 24 h.
	IdempotencyAge time.Duration
	// Retention is how long finished operations are kept; the zero value keeps them for ever.
	Retention history.Retention
	// Events is how long events are kept for subscribers that reconnect; the zero value keeps them for ever.
	Events events.Retention
}

// Queue is what decides which operation starts next.
type Queue struct {
	// Lanes are the lanes by name. statefs.DefaultLane always exists; it is unlimited unless it is set.
	Lanes map[string]lanes.LaneConfig
	// Limits are the capacities of the limits by name, negative for unlimited.
	Limits map[string]int
	// Ageing is the waiting time that is worth one point of priority; by default only the priority counts.
	Ageing time.Duration
	// MaxQueued is how many operations may wait before submits are refused; 0: any number.
	MaxQueued int
}

// Outbox is how results are delivered.
type Outbox struct {
	// WebhookAllow are the addresses and networks, besides the public ones, that webhooks may connect to, such as
	// 127.0.0.1 or 10.0.0.0/8.
	WebhookAllow []string
	// Workers is how many deliveries run at once, default 16; PerTarget how many of them to one target, default
	// 4.
	Workers, PerTarget int
}

// OnStop is what SIGTERM does with running work.
type OnStop string

// The values of on_stop.
const (
	// StopLeave lets commands continue under their keeper; handlers are interrupted.
	StopLeave OnStop = "leave"
	// StopInterrupt interrupts all work and puts it back into the queue.
	StopInterrupt OnStop = "interrupt"
	// StopWait starts no more work and waits until nothing runs.
	StopWait OnStop = "wait"
)

// defaults returns the configuration without any settings.
func defaults(env map[string]string) Config {
	c := Config{Queue: Queue{Lanes: map[string]lanes.LaneConfig{statefs.DefaultLane: newLane()}, Limits: map[string]int{}}}
	for _, s := range settings {
		s.preset(&c)
	}
	c.Storage = defaultStorage(env)
	return c
}

func newLane() lanes.LaneConfig {
	return lanes.LaneConfig{Lane: queue.Lane{Capacity: queue.Unlimited}}
}

// defaultStorage returns the state directory of the service (systemd.exec(5), StateDirectory=) or of the user
// (XDG Base Directory Specification), or "" when neither is set.
func defaultStorage(env map[string]string) string {
	if dirs := env["STATE_DIRECTORY"]; dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	if dir := env["XDG_STATE_HOME"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, "jobdir")
	}
	home := env["HOME"]
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "state", "jobdir")
}

// longestIdempotencyAge bounds the number of days that are searched for a key.
const longestIdempotencyAge = 30 * 24 * time.Hour

// complete makes paths absolute and checks settings that depend on each other.
func (c *Config) complete() error {
	if c.Upkeep.IdempotencyAge > longestIdempotencyAge {
		return exit.Usagef("idempotency_age is %s: it is at most %s", c.Upkeep.IdempotencyAge, longestIdempotencyAge)
	}
	if c.Storage == "" {
		return exit.Usagef("no storage directory: $HOME is not set, so name one with --storage")
	}
	paths := []*string{&c.Storage, &c.TokenFile}
	for i := range c.Jobs {
		paths = append(paths, &c.Jobs[i])
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("path %s: %w", *path, err)
		}
		*path = abs
	}
	return nil
}
