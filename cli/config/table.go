package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

//go:generate go test -count=1 -run TestSettingsPage . -update

// defaultRetention applies when the configuration sets no retention.
var defaultRetention = history.Retention{Age: 30 * term.Day, FailedAge: 90 * term.Day, Bytes: 20 << 30}

// maxDeliveries bounds how many deliveries run at once: each needs a connection or an open file.
const maxDeliveries = 1000

// settings is the table of all settings but lanes and limits, which are mappings by name: key, default, field, kind
// of value, help. The default of the storage depends on the environment, see defaultStorage.
var settings = []*setting{
	listSetting("listen", []string{"127.0.0.1:8484"}, func(c *Config) *[]string { return &c.Listen }, CheckListen,
		"address to listen on: HOST:PORT or unix:/PATH; the socket in the storage is always there"),
	newSetting("storage", "", func(c *Config) *string { return &c.Storage }, text,
		"storage directory").shares().paths(),
	listSetting("jobs", nil, func(c *Config) *[]string { return &c.Jobs }, nil,
		"folder of job definitions, searched recursively").paths(),
	newSetting("durability", statefs.Power, func(c *Config) *statefs.Durability { return &c.Durability },
		choice(statefs.Power, statefs.Process),
		"what an accepted operation survives: power (a power cut) or process (the daemon's death)"),
	newSetting("commit", statefs.CommitJournal, func(c *Config) *statefs.CommitMethod { return &c.Commit.Method },
		choice(statefs.CommitJournal, statefs.CommitFiles),
		"how changes become durable: journal (one log, and the files follow) or files (each file is synced)"),
	newSetting("journal_segment", 16<<20, func(c *Config) *int64 { return &c.Commit.SegmentSize }, size,
		"size of a file of the journal; two to eight of them exist"),
	newSetting("grace", 10*time.Second, func(c *Config) *time.Duration { return &c.Work.Grace }, duration,
		"time between SIGTERM and SIGKILL"),
	newSetting("stall_after", 0, func(c *Config) *time.Duration { return &c.Work.StallAfter }, durationOrOff,
		"time without output and progress after which work of a job without stall_after is shown as stalled, or off"),
	newSetting("on_stop", StopLeave, func(c *Config) *OnStop { return &c.OnStop },
		choice(StopLeave, StopInterrupt, StopWait),
		"what SIGTERM does to running work: leave (commands go on), interrupt, or wait for its end"),
	newSetting("idempotency_age", submit.DefaultKeyAge,
		func(c *Config) *time.Duration { return &c.Upkeep.IdempotencyAge }, duration,
		"how long an Idempotency-Key names its operation, also after that has ended"),
	newSetting("sweep_interval", time.Minute, func(c *Config) *time.Duration { return &c.Upkeep.SweepInterval }, duration,
		"time between two sweeps of the storage"),
	newSetting("token_file", "", func(c *Config) *string { return &c.TokenFile }, text,
		"file of tokens, one a line: NAME:SECRET or SECRET").shares().paths(),
	newSetting("insecure", false, func(c *Config) *bool { return &c.Access.Insecure }, toggle,
		"allow listening beyond the loopback without tokens").toggles(),
	listSetting("hosts", nil, func(c *Config) *[]string { return &c.Access.Hosts }, nil,
		"host name under which browsers may reach the daemon"),
	listSetting("webhook_allow", nil, func(c *Config) *[]string { return &c.Outbox.WebhookAllow },
		func(text string) error { _, err := outbox.ParseAllow(text); return err },
		"address or network that is not public and that webhooks may connect to, such as 127.0.0.1 or 10.0.0.0/8"),
	newSetting("outbox_workers", outbox.DefaultWorkers, func(c *Config) *int { return &c.Outbox.Workers },
		number(maxDeliveries), "how many deliveries run at once"),
	newSetting("outbox_per_target", outbox.DefaultPerTarget, func(c *Config) *int { return &c.Outbox.PerTarget },
		number(maxDeliveries), "how many deliveries run at once at one target"),
	newSetting("group_control", false, func(c *Config) *bool { return &c.GroupControl }, toggle,
		"let the group of the storage start and control by file").toggles(),
	newSetting("log_format", "text", func(c *Config) *string { return &c.LogFormat }, choice("text", "json"),
		"format of the daemon's own log: text or json"),
	newSetting("log_level", "info", func(c *Config) *string { return &c.LogLevel },
		choice("debug", "info", "warn", "error"),
		"least level of the daemon's own log: debug, info, warn or error"),

	newSetting("retention_age", defaultRetention.Age, func(c *Config) *time.Duration { return &c.Upkeep.Retention.Age },
		age, "how long after its end an operation is kept, such as 30d; 0: for ever").in("retention"),
	newSetting("retention_failed_age", defaultRetention.FailedAge,
		func(c *Config) *time.Duration { return &c.Upkeep.Retention.FailedAge },
		age, "the same for operations that failed").in("retention"),
	newSetting("retention_bytes", defaultRetention.Bytes, func(c *Config) *int64 { return &c.Upkeep.Retention.Bytes },
		size, "how large the history may get, such as 20GiB; the oldest goes first; 0: no limit").in("retention"),
	newSetting("retention_count", defaultRetention.Count, func(c *Config) *int { return &c.Upkeep.Retention.Count },
		count, "how many ended operations are kept; the oldest goes first; 0: no limit").in("retention"),

	newSetting("events_age", events.DefaultRetention.Age, func(c *Config) *time.Duration { return &c.Upkeep.Events.Age },
		age, "how long an event is kept for readers that reconnect, such as 7d; 0: no limit").in("events"),
	newSetting("events_bytes", events.DefaultRetention.Bytes, func(c *Config) *int64 { return &c.Upkeep.Events.Bytes },
		size, "how large the event log may get, such as 64MiB; the oldest goes first; 0: no limit").in("events"),

	newSetting("ageing", 0, func(c *Config) *time.Duration { return &c.Queue.Ageing }, age,
		"how much waiting one point of priority is worth, so that low ones start too, such as 1h; 0: priority alone decides"),
	newSetting("max_queued", 1_000_000, func(c *Config) *int { return &c.Queue.MaxQueued }, count,
		"how many operations may wait to start; further ones are refused; 0: no limit"),

	newSetting("crash_limit_within", catalog.DefaultCrashLimit.Within,
		func(c *Config) *time.Duration { return &c.Work.CrashLimit.Within }, crashWithin,
		"how long a death counts, for jobs without their own, such as 10m").in("crash_limit"),
	newSetting("crash_limit_burst", catalog.DefaultCrashLimit.Burst,
		func(c *Config) *int { return &c.Work.CrashLimit.Burst }, number(catalog.MaxCrashBurst),
		"how many deaths leave work to a person, for jobs without their own").in("crash_limit"),
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
	path   bool
	preset func(c *Config) // sets the default
	set    func(c *Config, values []string) error
	get    func(c *Config) []string
}

func (s *setting) flag() string     { return strings.ReplaceAll(s.key, "_", "-") }
func (s *setting) variable() string { return "JOBDIR_" + strings.ToUpper(s.key) }

// name is the key inside the mapping that contains it.
func (s *setting) name() string { return strings.TrimPrefix(s.key, s.within+"_") }

func (s *setting) shares() *setting           { s.shared = true; return s }
func (s *setting) paths() *setting            { s.path = true; return s }
func (s *setting) toggles() *setting          { s.toggle = true; return s }
func (s *setting) in(mapping string) *setting { s.within = mapping; return s }

func settingFor(key string) *setting {
	i := slices.IndexFunc(settings, func(s *setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return settings[i]
}

// newSetting makes a setting of one value.
func newSetting[T any](key string, preset T, field func(*Config) *T, of kind[T], usage string) *setting {
	return &setting{
		key: key, usage: usage,
		preset: func(c *Config) { *field(c) = preset },
		set: func(c *Config, values []string) error {
			if len(values) != 1 {
				return fmt.Errorf("expected one value, got %d", len(values))
			}
			value, err := of.parse(values[0])
			if err == nil {
				*field(c) = value
			}
			return err
		},
		get: func(c *Config) []string { return []string{of.format(*field(c))} },
	}
}

// listSetting makes a setting of several texts.
func listSetting(key string, preset []string, field func(*Config) *[]string, check func(string) error,
	usage string,
) *setting {
	return &setting{
		key: key, usage: usage, list: true,
		preset: func(c *Config) { *field(c) = slices.Clone(preset) },
		set: func(c *Config, values []string) error {
			for _, text := range values {
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
			*field(c) = slices.Clone(values)
			return nil
		},
		get: func(c *Config) []string { return *field(c) },
	}
}

// AddFlags adds the flags of the shared settings, or of all others, to a command. Their values are only text here;
// Load parses and checks them, so that a flag has the same rules as a line of the file.
func AddFlags(flags *pflag.FlagSet, shared bool) {
	for _, s := range settings {
		if s.shared == shared {
			s.addFlag(flags)
		}
	}
}

// AddFlag adds the flag of one setting.
func AddFlag(flags *pflag.FlagSet, key string) { settingFor(key).addFlag(flags) }

func (s *setting) addFlag(flags *pflag.FlagSet) {
	usage := s.usage + " (" + s.variable() + ")"
	switch {
	case s.list:
		flags.StringSlice(s.flag(), nil, usage)
	case s.toggle:
		flags.Bool(s.flag(), false, usage)
	default:
		flags.String(s.flag(), "", usage)
	}
}
