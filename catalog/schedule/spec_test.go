package schedule

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, line, zone string) *Spec {
	t.Helper()
	s, err := Parse(line, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// slots returns the slots after from and before to, as people write them.
func slots(s *Spec, from, to time.Time) []string {
	var all []string
	for at := s.Next(from); !at.IsZero() && at.Before(to); at = s.Next(at) {
		all = append(all, at.Format("15:04:05-07"))
	}
	return all
}

func TestDaysOnWhichTheClocksChange(t *testing.T) {
	t.Parallel()
	berlin := parse(t, "* * * * *", "Europe/Berlin").zone
	spring := time.Date(2026, time.March, 29, 0, 0, 0, 0, berlin) // 02:00 becomes 03:00
	autumn := time.Date(2026, time.October, 25, 0, 0, 0, 0, berlin)
	for _, c := range []struct {
		line string
		day  time.Time
		want string
	}{
		{"30 2 * * *", spring, "03:30:00+02"},
		{"30 2 * * *", autumn, "02:30:00+02"},
		{"0 2 * * *", spring, "03:00:00+02"},
		{"0 2 * * *", autumn, "02:00:00+02"},
		{"0 3 * * *", spring, "03:00:00+02"},
		{"0 3 * * *", autumn, "03:00:00+01"},
		{"30 1 * * *", spring, "01:30:00+01"},
		{"30 1 * * *", autumn, "01:30:00+02"},
		{"30 2,3 * * *", spring, "03:30:00+02"},
		{"30 2,3 * * *", autumn, "02:30:00+02 03:30:00+01"},
		{"0 1-4 * * *", spring, "01:00:00+01 03:00:00+02 04:00:00+02"},
		{"0 1-4 * * *", autumn, "01:00:00+02 02:00:00+02 03:00:00+01 04:00:00+01"},
		{"*/20 2 * * *", autumn, "02:00:00+02 02:20:00+02 02:40:00+02"},
		{"15,30 30 2 * * *", autumn, "02:30:15+02 02:30:30+02"},
		{"0 0 * * *", spring, ""},
		{"59 23 * * *", autumn, "23:59:00+01"},
	} {
		got := strings.Join(slots(parse(t, c.line, "Europe/Berlin"), c.day, c.day.AddDate(0, 0, 1)), " ")
		if got != c.want {
			t.Errorf("%s on %s: %s, want %s", c.line, c.day.Format(time.DateOnly), got, c.want)
		}
	}
	// Every hour is every hour, however many the day has.
	for day, want := range map[time.Time]int{spring: 22, autumn: 24} {
		if got := slots(parse(t, "0 * * * *", "Europe/Berlin"), day, day.AddDate(0, 0, 1)); len(got) != want {
			t.Errorf("%d hours after midnight of %s: %v", len(got), day.Format(time.DateOnly), got)
		}
	}
	if got := slots(parse(t, "@hourly", "Europe/Berlin"), autumn, autumn.AddDate(0, 0, 1)); len(got) != 24 ||
		!slices.Contains(got, "02:00:00+01") {
		t.Errorf("@hourly: %v", got)
	}
	if got := slots(parse(t, "*/30 * * * *", "Europe/Berlin"), autumn.Add(time.Hour),
		autumn.Add(4*time.Hour)); strings.Join(got, " ") !=
		"01:30:00+02 02:00:00+02 02:30:00+02 02:00:00+01 02:30:00+01" {
		t.Errorf("every half hour: %v", got)
	}
}

// Whatever the zone does, slots come in order, once each, and a daily line fires once a day.
func TestOneSlotADay(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{
		"Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe",
		"Asia/Kathmandu", "Africa/Casablanca", "America/Santiago", "Pacific/Chatham", "UTC",
	} {
		for _, line := range []string{"30 2 * * *", "0 0 * * *", "15 1 * * *", "45 23 * * *"} {
			s := parse(t, line, zone)
			day := time.Date(2018, time.January, 1, 12, 0, 0, 0, s.zone)
			at := day
			seen := map[string]bool{}
			for at.Before(day.AddDate(3, 0, 0)) {
				next := s.Next(at)
				if !next.After(at) {
					t.Fatalf("%s in %s: %s after %s", line, zone, next, at)
				}
				if name := next.Format(time.DateOnly); seen[name] {
					t.Errorf("%s in %s: twice on %s", line, zone, name)
				} else {
					seen[name] = true
				}
				at = next
			}
			if len(seen) < 3*365-3 || len(seen) > 3*366 {
				t.Errorf("%s in %s: %d days of three years", line, zone, len(seen))
			}
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) // a Thursday
	for line, want := range map[string]string{
		"0 3 * * *":         "2026-01-01T03:00:00Z",
		"  */5  * * * * ":   "2026-01-01T00:05:00Z",
		"*/10 * * * * *":    "2026-01-01T00:00:10Z",
		"0 0 29 2 *":        "2028-02-29T00:00:00Z",
		"0 0 13 * 5":        "2026-01-02T00:00:00Z", // either, as in crontab(5)
		"0 9 * * mon-fri":   "2026-01-01T09:00:00Z",
		"0 0 1 jan,jul *":   "2026-07-01T00:00:00Z",
		"@daily":            "2026-01-02T00:00:00Z",
		"@weekly":           "2026-01-04T00:00:00Z",
		"@monthly":          "2026-02-01T00:00:00Z",
		"@yearly":           "2027-01-01T00:00:00Z",
		"0 0 31 1,3,5,12 *": "2026-01-31T00:00:00Z",
	} {
		s := parse(t, line, "")
		if got := s.Next(from).Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
		if s.Cron() != strings.Join(strings.Fields(line), " ") || s.Timezone() != "" {
			t.Errorf("%q is kept as %q in %q", line, s.Cron(), s.Timezone())
		}
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, zone, field, want string }{
		{"0 0 30 2 *", "", "cron", "no day has this date, so it would never be due"},
		{"0 0 31 4,6,9,11 *", "", "cron", "no day has this date"},
		{"0 3 * * *", "Europe/Berlim", "timezone", "there is no time zone of this name"},
		{"0 3 * * *", "../../etc/passwd", "timezone", "there is no time zone of this name"},
		{"TZ=UTC 0 3 * * *", "", "cron", "the time zone has a key of its own"},
		{"CRON_TZ=UTC 0 3 * * *", "", "cron", "the time zone has a key of its own"},
		{"@every 5m", "", "cron", "write the times"},
		{"@reboot", "", "cron", ""},
		{"60 * * * *", "", "cron", "60"},
		{"* * *", "", "cron", ""},
		{"", "", "cron", ""},
		{"* * * * * * *", "", "cron", ""},
		{"a b c d e", "", "cron", ""},
		{"5-1-2 * * * *", "", "cron", ""},
		{"*/0 * * * *", "", "cron", ""},
	} {
		_, err := Parse(c.line, c.zone)
		wrong, ok := errors.AsType[*FieldError](err)
		if !ok || wrong.Field != c.field || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %v, want %s: %s", c.line, c.zone, err, c.field, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"0 3 * * *", "*/5 * * * * *", "@daily", "0 0 30 2 *", "1-5,7/2 * ? jan mon",
		"TZ=0", "59 23 31 12 7",
	} {
		f.Add(line, "Europe/Berlin")
	}
	now := time.Date(2026, time.October, 24, 23, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, line, zone string) {
		s, err := Parse(line, zone)
		if err != nil {
			return
		}
		at := now
		for range 5 {
			next := s.Next(at)
			if !next.IsZero() && !next.After(at) {
				t.Fatalf("%q in %q: %s after %s", line, zone, next, at)
			}
			at = next
		}
	})
}

// The delay of a slot is constant, within its bound, and evenly distributed.
func TestJitter(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, time.March, 29, 3, 30, 0, 0, time.UTC)
	var halves int
	for i := range 1000 {
		at := slot.Add(time.Duration(i) * time.Minute)
		d := Jitter("g/job", at, time.Hour)
		if d < 0 || d >= time.Hour || d != Jitter("g/job", at.In(time.FixedZone("x", 7200)), time.Hour) {
			t.Fatalf("%s at %s", d, at)
		}
		if d < 30*time.Minute {
			halves++
		}
	}
	if halves < 400 || halves > 600 {
		t.Errorf("%d of 1000 are in the first half", halves)
	}
	if Jitter("g/job", slot, 0) != 0 || Jitter("g/a", slot, time.Hour) == Jitter("g/b", slot, time.Hour) {
		t.Error("no jitter, or the same for two jobs")
	}
}
