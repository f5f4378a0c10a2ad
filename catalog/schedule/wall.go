package schedule

import "time"

// Next returns the first slot after a time, in the time zone of the line; zero if there is none.
//
// The line is evaluated on a wall clock without changes, and the resulting wall times are converted to real
// times here. The cron library itself skips days in zones that change by half an hour, and fires twice in an
// hour that occurs twice.
func (s *Spec) Next(after time.Time) time.Time {
	after = after.In(s.zone)
	var best time.Time
	for w := s.times.Next(wallOf(after).Add(-lookBack(after))); !w.IsZero(); w = s.times.Next(w) {
		for _, t := range s.instants(w) {
			if t.After(after) && (best.IsZero() || t.Before(best)) {
				best = t
			}
		}
		// Close to a change some come later than others that follow them on the wall.
		if !best.IsZero() && !w.Before(wallOf(best).Add(lookBack(best))) {
			break
		}
	}
	return best
}

// wallOf is what the wall clock shows, as a time in UTC.
func wallOf(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// change is a moment at which the clocks are put forward or back.
type change struct {
	at            time.Time
	before, after time.Duration // offsets from UTC
}

// changesAround are the changes before and after a time, as far as there are any.
func changesAround(t time.Time) []change {
	var found []change
	start, end := t.ZoneBounds()
	for _, at := range []time.Time{start, end} {
		if !at.IsZero() {
			_, before := at.Add(-time.Nanosecond).Zone()
			_, after := at.Zone()
			found = append(found, change{at, time.Duration(before) * time.Second, time.Duration(after) * time.Second})
		}
	}
	return found
}

// lookBack returns how far back on the wall clock the next slot may be: close to a change the wall clock
// repeats or skips times.
func lookBack(t time.Time) time.Duration {
	var back time.Duration
	for _, c := range changesAround(t) {
		if by := (c.after - c.before).Abs(); t.Sub(c.at).Abs() <= by {
			back = max(back, by)
		}
	}
	return back
}

// instants returns the slots that a time on the wall means: in general one; for a line that means every hour, each
// time that the wall shows it, and otherwise the first one, moved ahead when the wall passes over it.
func (s *Spec) instants(w time.Time) []time.Time {
	guess := w.In(s.zone)
	_, offset := guess.Zone()
	guess = guess.Add(-time.Duration(offset) * time.Second) // within a day of it
	_, offset = guess.Zone()
	offsets := []time.Duration{time.Duration(offset) * time.Second}
	changes := changesAround(guess)
	for _, c := range changes {
		offsets = append(offsets, c.before, c.after)
	}
	var shown []time.Time
	for _, o := range offsets {
		t := w.Add(-o).In(s.zone)
		if _, is := t.Zone(); time.Duration(is)*time.Second == o {
			shown = append(shown, t)
		}
	}
	if s.hourly {
		return shown
	}
	for _, c := range changes { // it is passed over
		if c.after > c.before && !w.Before(c.at.UTC().Add(c.before)) && w.Before(c.at.UTC().Add(c.after)) {
			return []time.Time{w.Add(-c.before).In(s.zone)}
		}
	}
	for i, t := range shown {
		if t.Before(shown[0]) {
			shown[0] = shown[i]
		}
	}
	return shown[:min(len(shown), 1)]
}
