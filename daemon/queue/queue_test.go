package queue

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// The rules, one script each. See script for the words.
var rules = map[string]string{
	"a lane starts what it has room for": `
		lane l 2
		wait a l; wait b l; wait c l
		starts a b
		why c lane_full by=a pos=1
		leave a
		starts c`,
	"an unlimited lane starts all": `
		lane l -1
		wait a l; wait b l; wait c l
		starts a b c`,
	"a lane without capacity starts nothing": `
		lane l 0
		wait a l
		starts
		why a lane_full pos=1
		lane l 1
		starts a`,
	"a lane that is not known starts nothing until it is": `
		wait a l
		starts
		why a unknown_lane pos=1
		lane l 1
		starts a`,
	"a paused lane starts nothing and keeps what is held": `
		lane l 2
		wait a l
		starts a
		lane l 2 paused
		wait b l
		starts
		why b lane_paused pos=1
		lane l 2
		starts b`,
	"lanes do not hold each other up": `
		lane l 1; lane m 1
		wait a l; wait b l; wait c m
		starts a c`,
	"more capacity starts more at once": `
		lane l 1
		wait a l; wait b l; wait c l
		starts a
		lane l 3
		starts b c`,
	"less capacity ends nothing": `
		lane l 3
		wait a l; wait b l; wait c l; wait d l
		starts a b c
		lane l 1
		leave a
		starts
		leave b
		starts
		leave c
		starts d`,
	"priority, then since when, then sequence": `
		lane l 0
		wait a l; wait b l since=-1m; wait c l prio=2; wait d l prio=-1 since=-1h; wait e l prio=2 since=-1s
		why e lane_full pos=1
		why c lane_full pos=2
		why b lane_full pos=3
		why a lane_full pos=4
		why d lane_full pos=5
		lane l -1
		starts e c b a d`,
	"a priority can change": `
		lane l 1
		wait a l; wait b l; wait c l
		wait c l prio=1
		starts c
		wait b l prio=-1
		leave c
		starts a`,
	"with ageing, a point of priority is worth some waiting": `
		ageing 1m
		lane l -1
		wait a l since=-3m; wait b l prio=2; wait c l prio=4; wait d l prio=-1 since=-2m
		starts c a b d`,
	"a limit counts over all lanes": `
		lane l -1; lane m -1; limit x 1
		wait a l limits=x; wait b m limits=x; wait c m
		starts a c
		why b limit limit=x by=a pos=1
		leave a
		starts b`,
	"a limit that is not known has no room": `
		lane l -1
		wait a l limits=x
		starts
		why a unknown_limit limit=x pos=1
		limit x 1
		starts a`,
	"the order and repetition of limits mean nothing": `
		lane l -1; limit x 1; limit y 2
		wait a l limits=x,y; wait b l limits=y,x,y
		starts a
		why b limit limit=x by=a pos=1
		leave a
		starts b
		wait c l limits=y
		starts c`,
	"a capacity of a limit can change": `
		lane l -1; limit x 1
		wait a l limits=x; wait b l limits=x
		starts a
		limit x -1
		starts b`,
	"nothing is taken while something is missing": `
		lane l 1; lane m 1; limit x 1; limit y 1
		wait a l limits=x; wait b m limits=y
		starts a b
		wait c l limits=x,y; wait d m
		leave b
		starts d
		leave d; leave a
		starts c`,
	"who waits for a limit or a key lets others pass": `
		lane l 2; limit x 1
		wait a l limits=x key=k
		starts a
		wait b l limits=x prio=9; wait c l key=k prio=9; wait d l
		starts d`,
	"a start that was not carried out is taken back": `
		lane l 2 1/1m
		wait a l key=k; wait b l prio=1
		starts b
		back b yes
		back b no
		back c no
		wait c l prio=2
		starts c
		hold c l
		back c no
		back a no
		at 1m
		starts b
		back b yes
		lane l 1
		starts
		leave c
		starts b
		leave b
		at 2m
		starts a
		back a yes
		wait d l key=k prio=7
		why d key by=a pos=1
		starts a`,
	"who comes back has its old turn for the key": `
		lane l -1
		wait a l key=k; wait b l key=k; wait c l key=k
		starts a
		leave a
		starts b
		wait a l key=k since=5m
		leave b
		starts a`,
	"who is held and waits again gives back what it holds": `
		lane l 1; limit x 1
		wait a l limits=x key=k; wait b l limits=x key=k
		starts a
		wait a l limits=x key=k prio=-1 order=priority
		starts a
		wait a m
		starts b`,
	"adopted ones may be more than there is room for": `
		lane l 1; limit x 1
		hold a l limits=x key=k; hold b l limits=x key=k; hold c l
		wait d l; wait e m key=k; lane m -1
		starts
		why d lane_full by=a pos=1
		why e key by=a pos=1
		hold a l limits=x key=k
		why e key by=a pos=1
		leave a
		why e key by=b pos=1
		leave b
		starts e
		leave c
		starts d`,
	"who waits can be adopted": `
		lane l 1
		wait a l; wait b l
		hold b l
		starts
		leave b
		starts a`,
	"who is adopted anew has moved": `
		lane l 1; lane m 1
		hold a l
		hold a m
		wait b l; wait c m
		starts b`,
	"leaving twice, or without having been there, does nothing": `
		lane l 1
		wait a l; wait b l
		starts a
		leave a; leave a; leave c
		starts b`,
	"a lane starts so many in a time": `
		lane l -1 2/1m
		wait a l; wait b l; wait c l; wait d l
		starts a b
		wake 1m
		why c rate until=1m pos=1
		at 59s
		starts
		at 1m
		starts c d
		wake -`,
	"in any stretch of that time": `
		lane l -1 2/1m
		wait a l
		starts a
		at 50s
		wait b l; wait c l; wait d l
		starts b
		wake 1m
		at 1m
		starts c
		wake 1m50s
		at 1m49s
		starts
		at 1m50s
		starts d`,
	"a lane keeps a gap": `
		lane l -1 gap=10s
		wait a l; wait b l; wait c l
		starts a
		wake 10s
		at 12s
		starts b
		wake 22s`,
	"gap and rate hold both": `
		lane l -1 2/1m gap=10s
		wait a l; wait b l; wait c l
		starts a
		wake 10s
		at 10s
		starts b
		wake 1m`,
	"a rate is no reason to wake while something else is missing": `
		lane l 1 1/1m; lane m -1 1/1m; limit x 0
		wait a l; wait b l
		starts a
		wake -
		wait c m key=k
		starts c
		wait d m key=k; wait e m limits=x
		wake -
		leave c
		wake 1m`,
	"a rate can be lifted": `
		lane l -1 1/1m
		wait a l; wait b l; wait c l
		starts a
		lane l -1
		starts b c`,
	"who is held back by a rate does not hold up a key of any order": `
		lane l -1 1/1m; lane m -1
		wait a l; wait b l key=k order=any; wait c m key=k order=any
		starts a c
		at 1m
		starts
		leave c
		starts b`,
	"starts from before count": `
		lane l -1 2/1m
		started l -10s; started l -30s
		wait a l
		wake 30s
		at 30s
		starts a
		wake -`,
	"in any order": `
		lane l -1 2/1m
		started l -10s; started l -5s; started l -30s
		wait a l
		starts
		wake 50s`,
	"a clock that is set back does not hold up for longer than the rate": `
		lane l -1 1/1m
		wait a l; wait b l
		starts a
		at -24h
		starts
		wake -23h59m
		at -23h59m
		starts b`,
	"the front is before all others": `
		lane l 0
		wait a l prio=5; wait b l; wait c l prio=-1
		front b 6
		front a 5
		front c 6
		wait c l prio=6
		why c lane_full pos=1`,
	"also with ageing": `
		ageing 1m
		lane l 0
		wait a l prio=5; wait b l; wait c l since=90s
		front b 6
		front c 7
		front a 5
		wait c l since=90s prio=7
		why c lane_full pos=1`,
	"of what waits those stand first that start next in their lane, and with their limits": `
		lane l 0; lane m 0; limit x 1
		first
		wait a l; wait b l; wait c m
		first a c
		wait d l limits=x prio=5; wait e l limits=x
		first a c d
		wait f l key=k; wait g l key=k; wait h l key=j
		first a c d f
		hold i m key=k
		first a c d h
		leave a; leave d
		first b c e h
		leave b; leave h
		first c e
		lane l 2
		starts e
		first c f`,
	"what nobody uses any more is forgotten": `
		wait a l limits=x key=k
		hold b m limits=y key=j
		keep c l key=i
		lanes l m
		leave a; leave b; leave c
		lanes
		lane l 1; limit x 1
		lanes l`,
}

func TestRules(t *testing.T) {
	t.Parallel()
	all := maps.Clone(rules)
	maps.Copy(all, rulesOfKeys)
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{t: t, q: New(0), now: noon}
			for line := range strings.Lines(text) {
				for step := range strings.SplitSeq(line, ";") {
					if words := strings.Fields(step); len(words) > 0 {
						s.step(words)
						if t.Failed() {
							t.Fatalf("at %q", strings.TrimSpace(step))
						}
					}
				}
			}
		})
	}
}

func TestLaneStats(t *testing.T) {
	t.Parallel()
	q := New(0)
	set := Lane{Capacity: 1, Starts: 1, Per: time.Minute}
	q.SetLane("l", set)
	q.SetLimit("x", 3)
	for i := range 3 {
		q.Enqueue(Item{
			ID: makeID(t, "a", uint64(i+1)), Lane: "l", Limits: []string{"x"}, Priority: i,
			Since: noon.Add(time.Duration(i) * time.Second),
		})
	}
	q.Enqueue(Item{ID: makeID(t, "a", 4), Lane: "other"})
	if _, ok := q.Next(noon); !ok {
		t.Fatal("nothing starts")
	}
	if got, want := fmt.Sprint(q.Lanes(noon)), fmt.Sprint([]LaneStats{
		{
			Name: "l", Known: true, Lane: set, Running: 1, Waiting: 2, Oldest: time.Unix(0, noon.UnixNano()),
			Until: noon.Add(time.Minute),
		},
		{Name: "other", Waiting: 1},
	}); got != want {
		t.Errorf("lanes:\n%s, want\n%s", got, want)
	}
	limits := q.Limits()
	if len(limits) != 1 || limits[0].Name != "x" || !limits[0].Known || *limits[0].Capacity != 3 || limits[0].Running != 1 ||
		q.Waiting() != 3 {
		t.Errorf("limits: %+v, %d wait", limits, q.Waiting())
	}
	if l, _ := q.Lane("l", noon.Add(time.Minute)); !l.Until.IsZero() {
		t.Errorf("the rate allows a start, and holds the lane back until %s", l.Until)
	}
	if lane, ok := q.Held(makeID(t, "a", 3)); !ok || lane != "l" {
		t.Errorf("the one that was started is held in %q", lane)
	}
	if _, ok := q.Held(makeID(t, "a", 1)); ok {
		t.Error("one that waits is held")
	}
	if _, ok := q.Lane("none", noon); ok {
		t.Error("there is a lane that was never named")
	}
}

// Numbers at the ends of their ranges do not wrap around: the one with the higher priority who has also waited longer
// is first.
func TestFarAwayTimesAndPriorities(t *testing.T) {
	t.Parallel()
	const most = int(^uint(0) >> 1)
	times := []time.Time{{}, noon, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, ageing := range []time.Duration{0, 1, time.Minute, 1000 * time.Hour} {
		q := New(ageing)
		q.SetLane("l", Lane{Capacity: Unlimited})
		var items []Item
		for _, priority := range []int{-most - 1, 0, most} {
			for _, since := range times {
				item := Item{ID: makeID(t, "a", uint64(len(items)+1)), Lane: "l", Priority: priority, Since: since}
				items = append(items, item)
				q.Enqueue(item)
			}
		}
		why := func(item Item) statefs.Waiting {
			w, ok := q.Why(item.ID, noon)
			var since time.Time
			if w.Since != nil {
				since = *w.Since
			}
			if !ok || item.Since.Year() < 9999 && !since.Equal(item.Since) {
				t.Errorf("%s waits since %s: %+v", item.ID, item.Since, w)
			}
			return w
		}
		for _, a := range items {
			for _, b := range items {
				if a.Priority > b.Priority && !a.Since.After(b.Since) || a.Priority == b.Priority && a.Since.Before(b.Since) {
					if first, second := why(a).Position, why(b).Position; first > second {
						t.Errorf("with ageing %s, priority %d since %s is number %d, after priority %d since %s, number %d",
							ageing, a.Priority, a.Since, first, b.Priority, b.Since, second)
					}
				}
			}
		}
	}
}
