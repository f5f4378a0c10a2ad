package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return t
}

// fired are the slots that come of looking at some times, one after another.
func fired(s *Spec, begin string, missed Missed, looks ...string) []string {
	var all []string
	h := Begin(at(begin))
	for _, look := range looks {
		var due []time.Time
		due, h = h.Due(s, at(look), missed)
		for _, slot := range due {
			all = append(all, slot.Format("02 15:04"))
		}
	}
	return all
}

func TestSlotsThatWereMissed(t *testing.T) {
	t.Parallel()
	s := parse(t, "0 * * * *", "UTC")
	for name, c := range map[string]struct {
		missed Missed
		looks  []string
		want   []string
	}{
		"on time": {
			MissedSkip,
			[]string{"2026-01-01 01:00:00", "2026-01-01 02:00:01", "2026-01-01 02:30:00"},
			[]string{"01 01:00", "01 02:00"},
		},
		"a restart in between": {MissedSkip, []string{"2026-01-01 01:00:45"}, []string{"01 01:00"}},
		"skip":                 {MissedSkip, []string{"2026-01-01 05:30:00", "2026-01-01 06:00:00"}, []string{"01 06:00"}},
		"skip but the newest": {
			MissedSkip,
			[]string{"2026-01-01 05:00:30", "2026-01-01 06:00:00"},
			[]string{"01 05:00", "01 06:00"},
		},
		"once": {
			MissedOnce,
			[]string{"2026-01-01 05:30:00", "2026-01-01 05:40:00", "2026-01-01 06:00:00"},
			[]string{"01 05:00", "01 06:00"},
		},
		"all": {
			MissedAll,
			[]string{"2026-01-01 03:30:00", "2026-01-01 03:40:00"},
			[]string{"01 01:00", "01 02:00", "01 03:00"},
		},
		"nothing due": {MissedAll, []string{"2026-01-01 00:40:00"}, nil},
		"set back": {
			MissedOnce,
			[]string{
				"2026-01-01 01:00:00", "2026-01-01 02:00:00", "2026-01-01 01:30:00", "2026-01-01 02:00:00",
				"2026-01-01 03:00:00",
			},
			[]string{"01 01:00", "01 02:00", "01 03:00"},
		},
		"set back behind all": {
			MissedOnce,
			[]string{
				"2026-01-01 01:00:00", "2025-12-01 00:30:00", "2025-12-01 01:00:00", "2026-01-01 01:00:00",
				"2026-01-01 02:00:00",
			},
			[]string{"01 01:00", "01 01:00", "01 02:00"},
		},
		"ahead for a while": {
			MissedOnce,
			[]string{
				"2026-01-01 01:00:00", "2027-01-01 01:00:00", "2026-01-01 01:30:00", "2026-01-01 02:00:00",
				"2026-01-01 03:00:00",
			},
			[]string{"01 01:00", "01 01:00", "01 02:00", "01 03:00"},
		},
		"ahead for an hour": {
			MissedOnce,
			[]string{
				"2026-01-01 01:00:00", "2026-01-01 02:10:00", "2026-01-01 01:20:00", "2026-01-01 02:00:00",
				"2026-01-01 03:00:00",
			},
			[]string{"01 01:00", "01 02:00", "01 03:00"},
		},
	} {
		if got := fired(s, "2026-01-01 00:30:00", c.missed, c.looks...); !slices.Equal(got, c.want) {
			t.Errorf("%s: fired %v, want %v", name, got, c.want)
		}
	}
}

func TestHandledUntil(t *testing.T) {
	t.Parallel()
	h := Handled{
		{at("2026-01-01 00:00:00"), at("2026-01-01 02:00:00")},
		{at("2026-01-01 04:00:00"), at("2026-01-01 06:00:00")},
	}
	slot := at("2026-01-01 05:00:00")
	if cut, ok := h.Until(slot); !ok || len(cut) != 2 || cut[0] != h[0] || !cut[1].To.Equal(slot) || h[1].To.Equal(slot) {
		t.Errorf("until %s: %v, %t", slot, cut, ok)
	}
	if cut, ok := h.Until(at("2026-01-01 03:00:00")); ok {
		t.Errorf("a time that is not dealt with: %v", cut)
	}
}

// A time without a daemon costs no more than the slots that fire of it, and no more than MaxMissed do.
func TestManyMissedSlots(t *testing.T) {
	t.Parallel()
	s := parse(t, "* * * * * *", "UTC")
	now := at("2026-01-01 00:00:00")
	for _, since := range []time.Duration{time.Hour, 24 * time.Hour, 40 * 365 * 24 * time.Hour} {
		due, h := Begin(now.Add(-since)).Due(s, now, MissedAll)
		if len(due) != MaxMissed || !due[MaxMissed-1].Equal(now) || !due[0].Equal(now.Add(-(MaxMissed-1)*time.Second)) {
			t.Errorf("after %s: %d slots from %s", since, len(due), due[0])
		}
		if again, _ := h.Due(s, now, MissedAll); len(again) > 0 {
			t.Errorf("after %s: %d of them again", since, len(again))
		}
	}
	if due, _ := Begin(now.Add(-3*time.Second)).Due(s, now, MissedAll); len(due) != 3 {
		t.Errorf("%d slots of three", len(due))
	}
}

// However the clock jumps and however often Due is called: no slot fires twice, no slot fires early, and a
// slot that the clock passes during a call fires unless it has fired already.
func TestEachSlotFiresOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{
			"*/7 * * * *", "0 * * * *", "30 2 * * *", "0 0 1 * *",
			"*/15 * * * * *",
		}).Draw(t, "line")
		missed := rapid.SampledFrom([]Missed{MissedSkip, MissedOnce, MissedAll}).Draw(t, "missed")
		s, err := Parse(line, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		now := at("2026-10-24 22:00:00")
		h := Begin(now)
		seen := map[int64]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := now
			want := time.Time{}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // the alarm for the next slot comes
				want = h.Next(s, now)
				now = want
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "seconds")) * time.Second)
			case 2:
				now = now.Add(time.Duration(rapid.IntRange(-40, 40).Draw(t, "days")) * 24 * time.Hour)
			case 3:
				now = now.Add(-time.Duration(rapid.IntRange(0, 7200).Draw(t, "back")) * time.Second)
			}
			var due []time.Time
			due, h = h.Due(s, now, missed)
			for _, slot := range due {
				if seen[slot.Unix()] || slot.After(now) || !s.Next(slot.Add(-time.Second)).Equal(slot) {
					t.Fatalf("%s fires at %s, after %s; fired before: %t", slot, now, before, seen[slot.Unix()])
				}
				seen[slot.Unix()] = true
			}
			if !want.IsZero() && !seen[want.Unix()] {
				t.Fatalf("%s did not fire when its time had come", want)
			}
			if !slices.IsSortedFunc(h, func(a, b Range) int { return a.From.Compare(b.From) }) || len(h) > maxRanges {
				t.Fatalf("%d ranges: %v", len(h), h)
			}
			for i := range h {
				if h[i].To.Before(h[i].From) || i > 0 && !h[i].From.After(h[i-1].To) {
					t.Fatalf("ranges overlap: %v", h)
				}
			}
		}
	})
}

// A daily line over a year, with a call of Due at each alarm: every day fires once, including both days on
// which the clocks change.
func TestSlotsOfAYear(t *testing.T) {
	t.Parallel()
	s := parse(t, "30 2 * * *", "Europe/Berlin")
	now := at("2026-01-01 00:00:00")
	h := Begin(now)
	days := map[string]int{}
	for {
		if now = h.Next(s, now); now.Year() > 2026 {
			break
		}
		var due []time.Time
		due, h = h.Due(s, now, MissedOnce)
		for _, slot := range due {
			days[slot.Format(time.DateOnly)]++
		}
	}
	if len(days) != 365 || len(h) != 1 {
		t.Errorf("%d days, %d ranges", len(days), len(h))
	}
	for day, times := range days {
		if times != 1 {
			t.Errorf("%d times on %s", times, day)
		}
	}
	if fmt.Sprint(h[0].To.Date()) != "2026 December 31" {
		t.Errorf("the last one was on %s", h[0].To)
	}
}
