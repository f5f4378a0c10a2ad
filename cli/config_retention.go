package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/history"
)

// retentionKey is the mapping of the file whose members are the settings of the retention: retention: {age: 30d} is
// retention_age.
const retentionKey = "retention"

// defaultRetention applies when the configuration sets no retention.
var defaultRetention = history.Retention{Age: 30 * day, FailedAge: 90 * day, Bytes: 20 << 30}

const day = term.Day

func retentionSettings() []*setting {
	return []*setting{
		ageSetting(retentionKey, "age", "how long after its end an operation is kept, such as 30d; 0: for ever",
			func(c *Config) *time.Duration { return &c.Retention.Age }),
		ageSetting(retentionKey, "failed_age", "the same for operations that failed",
			func(c *Config) *time.Duration { return &c.Retention.FailedAge }),
		bytesSetting(retentionKey, "how large the history may get, such as 20GiB; the oldest goes first; 0: no limit",
			func(c *Config) *int64 { return &c.Retention.Bytes }),
		{
			key: retentionKey + "_count", within: retentionKey,
			usage: "how many ended operations are kept; the oldest goes first; 0: no limit",
			set: func(c *Config, v []string) error {
				return one(v, func(text string) error {
					n, err := strconv.ParseUint(text, 10, 31)
					if err != nil {
						return fmt.Errorf("%q is not a whole number", text)
					}
					c.Retention.Count = int(n)
					return nil
				})
			},
			get: func(c *Config) []string { return []string{strconv.Itoa(c.Retention.Count)} },
		},
	}
}

// eventsKey is the mapping of the file for the event log: events: {age: 7d} is events_age.
const eventsKey = "events"

func eventSettings() []*setting {
	return []*setting{
		ageSetting(eventsKey, "age", "how long an event is kept for readers that reconnect, such as 7d; 0: no limit",
			func(c *Config) *time.Duration { return &c.Events.Age }),
		bytesSetting(eventsKey, "how large the event log may get, such as 64MiB; the oldest goes first; 0: no limit",
			func(c *Config) *int64 { return &c.Events.Bytes }),
	}
}

func bytesSetting(within, usage string, field func(*Config) *int64) *setting {
	return &setting{
		key: within + "_bytes", within: within, usage: usage,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				size, ok := param.ParseBytes(text)
				if !ok && text != "0" {
					return fmt.Errorf("%q is not an amount of bytes such as 20GiB, nor 0", text)
				}
				*field(c) = int64(size)
				return nil
			})
		},
		get: func(c *Config) []string { return []string{param.Bytes(*field(c)).String()} },
	}
}

func ageSetting(within, name, usage string, field func(*Config) *time.Duration) *setting {
	return &setting{
		key: within + "_" + name, within: within, usage: usage,
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				age, ok := param.ParseDuration(text)
				if !ok && text != "0" {
					return fmt.Errorf("%q is not a time such as 30d or 12h, nor 0", text)
				}
				*field(c) = age
				return nil
			})
		},
		get: func(c *Config) []string {
			age := *field(c)
			if age == 0 {
				return []string{"0"}
			}
			for _, unit := range []struct {
				name string
				is   time.Duration
			}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
				if age > 0 && age%unit.is == 0 {
					return []string{strconv.FormatInt(int64(age/unit.is), 10) + unit.name}
				}
			}
			return []string{strconv.FormatInt(age.Milliseconds(), 10) + "ms"}
		},
	}
}
