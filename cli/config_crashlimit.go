package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
)

// crashLimitKey is the mapping of the file with the settings of the crash limit: crash_limit: {burst: 5, within: 10m}.
const crashLimitKey = "crash_limit"

func crashLimitSettings() []*setting {
	within := ageSetting(crashLimitKey, "within", "how long a death counts, for jobs without their own, such as 10m",
		func(c *Config) *time.Duration { return &c.CrashLimit.Within })
	within.set = func(c *Config, v []string) error {
		return one(v, func(text string) error {
			d, ok := param.ParseDuration(text)
			if !ok || d < 1 || d > catalog.MaxCrashWithin {
				return fmt.Errorf("%q is not a time such as 10m, at most %dd", text, int(catalog.MaxCrashWithin/day))
			}
			c.CrashLimit.Within = d
			return nil
		})
	}
	return []*setting{within, {
		key: crashLimitKey + "_burst", within: crashLimitKey,
		usage: "how many deaths leave work to a person, for jobs without their own",
		set: func(c *Config, v []string) error {
			return one(v, func(text string) error {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 || n > catalog.MaxCrashBurst {
					return fmt.Errorf("%q is not a whole number from 1 to %d", text, catalog.MaxCrashBurst)
				}
				c.CrashLimit.Burst = n
				return nil
			})
		},
		get: func(c *Config) []string { return []string{strconv.Itoa(c.CrashLimit.Burst)} },
	}}
}
