package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/daemon"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// Config holds the settings of jobdir.yaml, the environment and the flags. See settings for the names.
type Config struct {
	Listen     []string
	Storage    string
	Jobs       []string
	Durability statefs.Durability
	Grace      time.Duration
	// StallAfter applies to jobs that do not set it; 0 means never.
	StallAfter    time.Duration
	OnStop        OnStop
	SweepInterval time.Duration
	// IdempotencyAge is how long an idempotency key names its operation.
	IdempotencyAge time.Duration
	TokenFile      string
	Insecure       bool
	Hosts          []string
	GroupControl   bool
	LogFormat      string
	LogLevel       string
	Retention      history.Retention
	Events         events.Retention
	// CrashLimit is how often a command may crash. It applies to jobs that do not set it.
	CrashLimit catalog.CrashLimit
	// Lanes are the lanes of the file and the default lane; Limits are capacities by name, negative for
	// unlimited.
	Lanes     map[string]daemon.LaneConfig
	Limits    map[string]int
	Ageing    time.Duration
	MaxQueued int
	// WebhookAllow are addresses and networks, besides the public ones, that webhooks may connect to.
	WebhookAllow []string
	// OutboxWorkers is how many deliveries run at once, OutboxPerTarget how many of them to one target.
	OutboxWorkers, OutboxPerTarget int
}

// setting is one key of the configuration. All sources give its value as text, so that a flag, a variable and
// a line of the file have the same rules.
type setting struct {
	key   string // in the file; the flag has dashes, the variable JOBDIR_ and capitals
	usage string
	// within is the mapping of the file that contains the setting under the rest of its key; "" for none.
	within string
	// shared settings are flags of every command, because commands without a daemon need them too.
	shared bool
	list   bool
	toggle bool
	// path values in the file are relative to the folder of the file.
	path bool
	set  func(c *Config, values []string) error
	get  func(c *Config) []string
}

func (s *setting) flag() string     { return strings.ReplaceAll(s.key, "_", "-") }
func (s *setting) variable() string { return "JOBDIR_" + strings.ToUpper(s.key) }

//go:generate go test -count=1 -run TestSettingsPage . -update

// settings are all settings; docs/settings.md is generated from them.
var settings = append([]*setting{
	listSetting("listen", "address to listen on: HOST:PORT or unix:/PATH; the socket in the storage is always there",
		func(c *Config) *[]string { return &c.Listen }, checkListen),
	textSetting("storage", "storage directory", func(c *Config) *string { return &c.Storage }).shares().paths(),
	listSetting("jobs", "folder of job definitions, searched recursively",
		func(c *Config) *[]string { return &c.Jobs }, nil).paths(),
	choiceSetting("durability", "what an accepted operation survives: power (a power cut) or process (the daemon's death)",
		func(c *Config) *statefs.Durability { return &c.Durability }, statefs.Power, statefs.Process),
	durationSetting("grace", "time between SIGTERM and SIGKILL", func(c *Config) *time.Duration { return &c.Grace }),
	offSetting(durationSetting("stall_after",
		"time without output and progress after which work of a job without stall_after is shown as stalled, or off",
		func(c *Config) *time.Duration { return &c.StallAfter }), func(c *Config) *time.Duration { return &c.StallAfter }),
	choiceSetting("on_stop", "what SIGTERM does to running work: leave (commands go on), interrupt, or wait for its end",
		func(c *Config) *OnStop { return &c.OnStop }, StopLeave, StopInterrupt, StopWait),
	durationSetting("idempotency_age", "how long an Idempotency-Key names its operation, also after that has ended",
		func(c *Config) *time.Duration { return &c.IdempotencyAge }),
	durationSetting("sweep_interval", "time between two sweeps of the storage",
		func(c *Config) *time.Duration { return &c.SweepInterval }),
	textSetting("token_file", "file of tokens, one a line: NAME:SECRET or SECRET",
		func(c *Config) *string { return &c.TokenFile }).shares().paths(),
	toggleSetting("insecure", "allow listening beyond the loopback without tokens",
		func(c *Config) *bool { return &c.Insecure }),
	listSetting("hosts", "host name under which browsers may reach the daemon",
		func(c *Config) *[]string { return &c.Hosts }, nil),
	listSetting("webhook_allow",
		"address or network that is not public and that webhooks may connect to, such as 127.0.0.1 or 10.0.0.0/8",
		func(c *Config) *[]string { return &c.WebhookAllow },
		func(text string) error { _, err := outbox.ParseAllow(text); return err }),
	numberSetting("outbox_workers", "how many deliveries run at once", func(c *Config) *int { return &c.OutboxWorkers }),
	numberSetting("outbox_per_target", "how many deliveries run at once at one target",
		func(c *Config) *int { return &c.OutboxPerTarget }),
	toggleSetting("group_control", "let the group of the storage start and control by file",
		func(c *Config) *bool { return &c.GroupControl }),
	choiceSetting("log_format", "format of the daemon's own log: text or json",
		func(c *Config) *string { return &c.LogFormat }, "text", "json"),
	choiceSetting("log_level", "least level of the daemon's own log: debug, info, warn or error",
		func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
}, slices.Concat(retentionSettings(), eventSettings(), queueSettings(), crashLimitSettings())...)

func settingFor(key string) *setting {
	i := slices.IndexFunc(settings, func(s *setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return settings[i]
}

// defaultConfig returns the configuration without any settings.
func defaultConfig(getenv func(string) string) Config {
	return Config{
		Listen:        []string{"127.0.0.1:8484"},
		Storage:       defaultStorage(getenv),
		Durability:    statefs.Power,
		Grace:         10 * time.Second,
		OnStop:        StopLeave,
		SweepInterval: time.Minute, IdempotencyAge: submit.DefaultKeyAge,
		LogFormat: "text",
		LogLevel:  "info",
		Retention: defaultRetention,
		Events:    events.DefaultRetention,
		Lanes:     map[string]daemon.LaneConfig{catalog.DefaultLane: newLane()},
		Limits:    map[string]int{},
		MaxQueued: defaultMaxQueued, CrashLimit: catalog.DefaultCrashLimit,

		OutboxWorkers: outbox.DefaultWorkers, OutboxPerTarget: outbox.DefaultPerTarget,
	}
}

// defaultStorage returns the state directory of the service (systemd.exec(5), StateDirectory=) or of the user
// (XDG Base Directory Specification), or "" when neither is set.
func defaultStorage(getenv func(string) string) string {
	if dirs := getenv("STATE_DIRECTORY"); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "jobdir")
	}
	home := getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "state", "jobdir")
}

// longestIdempotencyAge bounds the number of days that are searched for a key.
const longestIdempotencyAge = 30 * 24 * time.Hour

// complete makes paths absolute and checks settings that depend on each other.
func (c *Config) complete() error {
	if c.IdempotencyAge > longestIdempotencyAge {
		return exit.Usagef("idempotency_age is %s: it is at most %s", c.IdempotencyAge, longestIdempotencyAge)
	}
	if c.Storage == "" {
		return exit.Usagef("no storage directory: $HOME is not set, so name one with --storage")
	}
	for _, path := range []*string{&c.Storage, &c.TokenFile} {
		if err := absolute(path); err != nil {
			return err
		}
	}
	for i := range c.Jobs {
		if err := absolute(&c.Jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

func absolute(path *string) error {
	if *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	if err != nil {
		return fmt.Errorf("path %s: %w", *path, err)
	}
	*path = abs
	return nil
}

func (s *setting) shares() *setting { s.shared = true; return s }
func (s *setting) paths() *setting  { s.path = true; return s }

func textSetting(key, usage string, field func(*Config) *string) *setting {
	return &setting{
		key: key, usage: usage,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error { *field(c) = text; return nil })
		},
		get: func(c *Config) []string { return []string{*field(c)} },
	}
}

func listSetting(key, usage string, field func(*Config) *[]string, check func(string) error) *setting {
	return &setting{
		key: key, usage: usage, list: true,
		set: func(c *Config, v []string) error {
			for _, text := range v {
				if text == "" {
					return errors.New("an entry is empty")
				}
				if check == nil {
					continue
				}
				if err := check(text); err != nil {
					return err
				}
			}
			*field(c) = slices.Clone(v)
			return nil
		},
		get: func(c *Config) []string { return *field(c) },
	}
}

func choiceSetting[T ~string](key, usage string, field func(*Config) *T, choices ...T) *setting {
	return &setting{
		key: key, usage: usage,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				if !slices.Contains(choices, T(text)) {
					return fmt.Errorf("%q is not one of %v", text, choices)
				}
				*field(c) = T(text)
				return nil
			})
		},
		get: func(c *Config) []string { return []string{string(*field(c))} },
	}
}

func durationSetting(key, usage string, field func(*Config) *time.Duration) *setting {
	return &setting{
		key: key, usage: usage,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				d, err := time.ParseDuration(text)
				if err != nil || d <= 0 {
					return fmt.Errorf("%q is not a time above zero such as 10s or 1m30s", text)
				}
				*field(c) = d
				return nil
			})
		},
		get: func(c *Config) []string { return []string{field(c).String()} },
	}
}

// offSetting makes a duration setting that accepts off, which is stored as 0.
func offSetting(s *setting, field func(*Config) *time.Duration) *setting {
	set, get := s.set, s.get
	s.set = func(c *Config, v []string) error {
		if slices.Equal(v, []string{"off"}) {
			*field(c) = 0
			return nil
		}
		return set(c, v)
	}
	s.get = func(c *Config) []string {
		if *field(c) == 0 {
			return []string{"off"}
		}
		return get(c)
	}
	return s
}

// maxDeliveries bounds how many deliveries run at once: each needs a connection or an open file.
const maxDeliveries = 1000

func numberSetting(key, usage string, field func(*Config) *int) *setting {
	return &setting{
		key: key, usage: usage,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 || n > maxDeliveries {
					return fmt.Errorf("%q is not a whole number from 1 to %d", text, maxDeliveries)
				}
				*field(c) = n
				return nil
			})
		},
		get: func(c *Config) []string { return []string{strconv.Itoa(*field(c))} },
	}
}

func toggleSetting(key, usage string, field func(*Config) *bool) *setting {
	return &setting{
		key: key, usage: usage, toggle: true,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				on, err := strconv.ParseBool(text)
				if err != nil {
					return fmt.Errorf("%q is neither true nor false", text)
				}
				*field(c) = on
				return nil
			})
		},
		get: func(c *Config) []string { return []string{strconv.FormatBool(*field(c))} },
	}
}

func one(values []string, set func(string) error) error {
	if len(values) != 1 {
		return fmt.Errorf("expected one value, got %d", len(values))
	}
	return set(values[0])
}

// lookupEnv reads a variable of the environment; tests pass their own function to loadConfig.
var lookupEnv = os.LookupEnv
