package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"
	_ "time/tzdata" // machines and containers without a database of time zones know them too

	"github.com/netresearch/go-cron"
)

// Spec is a cron line in a time zone. It is made by [Parse] only and never changes.
type Spec struct {
	cron, timezone string
	times          *cron.SpecSchedule
	zone           *time.Location
	hourly         bool // it means every hour
}

// FieldError describes a mistake in a cron line or a time zone.
type FieldError struct {
	Field  string // cron or timezone
	Value  string
	Reason string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s cannot be %.80q: %s", e.Field, e.Value, e.Reason)
}

// searchYears is how far ahead a time is searched for: the 29th of February is eight years away at most.
const searchYears = 12

var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(searchYears)

// Parse reads a cron line of five fields (minute, hour, day of the month, month, day of the week), or six with
// seconds in front, or one of @yearly, @monthly, @weekly, @daily and @hourly. As in crontab(5), a line that restricts
// both the day of the month and the day of the week means either. timezone is a name of the database of time zones
// such as Europe/Berlin; "" is UTC, "Local" the zone of the machine. A line that means no time at all is refused. The
// error is a [*FieldError].
func Parse(line, timezone string) (*Spec, error) {
	line = strings.Join(strings.Fields(line), " ")
	zone, err := time.LoadLocation(timezone)
	if err != nil {
		return nil, &FieldError{
			"timezone", timezone,
			"there is no time zone of this name; write one such as Europe/Berlin or UTC",
		}
	}
	if strings.Contains(line, "TZ=") {
		return nil, &FieldError{"cron", line, "the time zone has a key of its own, timezone"}
	}
	parsed, err := parser.Parse(line)
	times, ok := parsed.(*cron.SpecSchedule)
	if err == nil && !ok {
		err = errNotTimes
	}
	if err != nil {
		return nil, &FieldError{"cron", line, strings.TrimPrefix(err.Error(), "cron: ")}
	}
	times.Location = time.UTC // its times are read off a wall clock that is never put forward or back, see wall.go
	s := &Spec{cron: line, timezone: timezone, times: times, zone: zone, hourly: everyHour(line)}
	if s.Next(epoch).IsZero() {
		return nil, &FieldError{"cron", line, "no day has this date, so it would never be due"}
	}
	return s, nil
}

// errNotTimes is for a line that means a distance and no times, such as @every 5m.
var errNotTimes = errors.New("write the times, such as */5 * * * * for every five minutes")

// epoch is the time at which a line is tried. It precedes a leap year by few and a century without one by many.
var epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// everyHour reports whether a line means every hour.
func everyHour(line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return line == "@hourly"
	}
	hour := fields[len(fields)-4]
	return hour == "*" || hour == "*/1"
}

// Cron returns the line, its fields separated by one space.
func (s *Spec) Cron() string { return s.cron }

// Timezone returns the name of the time zone as given to Parse.
func (s *Spec) Timezone() string { return s.timezone }

// Jitter returns the delay of a start after its slot: a duration below most that is always the same for the
// same job and slot, and evenly distributed over jobs and slots.
func Jitter(job string, slot time.Time, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(job + " " + slot.UTC().Format(time.RFC3339))) // a hash does not fail
	mixed := sum.Sum64()
	// The high bits of FNV are the better ones only after a last mix.
	mixed ^= mixed >> 33
	mixed *= 0xff51afd7ed558ccd
	mixed ^= mixed >> 33
	return time.Duration(float64(mixed) / math.MaxUint64 * float64(most-1))
}
