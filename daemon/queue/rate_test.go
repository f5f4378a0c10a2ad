package queue

import (
	"testing"
	"time"
)

// A lane remembers only as many starts as its rate requires, however long it runs, and none without a rate.
func TestRateRemembersLittle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  Lane
		most int
	}{
		"no rate":      {Lane{}, 0},
		"a gap":        {Lane{Gap: time.Second}, 2},
		"a rate":       {Lane{Starts: 10, Per: time.Minute}, 20},
		"rate and gap": {Lane{Starts: 10, Per: time.Minute, Gap: time.Second}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r rate
			for i := range 1000 {
				r.add(noon.Add(time.Duration(i)*time.Second), &c.set)
				if len(r.starts) > c.most || cap(r.starts) > 4*c.most+4 {
					t.Fatalf("after %d starts it remembers %d, in room for %d, want at most %d", i+1, len(r.starts),
						cap(r.starts), c.most)
				}
				if c.most > 0 && !r.starts[len(r.starts)-1].Equal(noon.Add(time.Duration(i)*time.Second)) {
					t.Fatal("it has forgotten the last one")
				}
			}
		})
	}
}
