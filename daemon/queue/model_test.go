package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
)

// Random calls, each followed by all possible starts, return what the rule requires. rapid shrinks a failing
// sequence.
func TestQueueFollowsTheRule(t *testing.T) {
	t.Parallel()
	for i := range 10 { // a hundred sequences each
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, followsTheRule)
		})
	}
}

func FuzzQueueFollowsTheRule(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(followsTheRule))
}

// machine is a queue beside its oracle.
type machine struct {
	*Queue
	t      *rapid.T
	oracle oracle
	now    time.Time
	items  map[statefs.ID]Item // all that wait or are held
}

var (
	someLanes  = rapid.SampledFrom([]string{"l", "m", "n"})
	someLimits = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), 0, 2)
	someKeys   = rapid.SampledFrom([]string{"", "", "i", "j", "k"})
	capacities = rapid.IntRange(Unlimited, 3)
	spans      = rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second
	})
)

func followsTheRule(t *rapid.T) {
	ageing := spans.Draw(t, "ageing")
	m := &machine{
		Queue: New(ageing), t: t, now: noon, items: map[statefs.ID]Item{},
		oracle: oracle{ageing: ageing, lanes: map[string]Lane{}, limits: map[string]int{}, started: map[string][]time.Time{}},
	}
	m.setLane("l", Lane{Capacity: 1})
	m.setLane("m", Lane{Capacity: Unlimited})
	m.setLimit("x", 1)
	t.Repeat(map[string]func(*rapid.T){
		"wait": func(t *rapid.T) { m.wait(m.drawItem(t)) },
		"wait for a key": func(t *rapid.T) {
			item := m.drawItem(t)
			item.Key = "k"
			m.wait(item)
		},
		"wait again": func(t *rapid.T) {
			item := m.draw(t)
			item.Priority = rapid.IntRange(-3, 3).Draw(t, "priority")
			m.wait(item)
		},
		"move": func(t *rapid.T) {
			item := m.drawItem(t)
			item.ID = m.draw(t).ID
			m.wait(item)
		},
		"keep":     func(t *rapid.T) { m.keep(m.drawItem(t)) },
		"keep one": func(t *rapid.T) { m.keep(m.draw(t)) },
		"adopt":    func(t *rapid.T) { m.hold(m.drawItem(t)) },
		"hold":     func(t *rapid.T) { m.hold(m.draw(t)) },
		"leave":    func(t *rapid.T) { m.leave(m.draw(t).ID) },
		"finish":   func(t *rapid.T) { m.leave(drawFrom(t, m.oracle.held).ID) },
		"time":     func(t *rapid.T) { m.now = m.now.Add(spans.Draw(t, "passes")) },
		"clock":    func(t *rapid.T) { m.now = m.now.Add(-spans.Draw(t, "is set back by")) },
		"started": func(t *rapid.T) {
			name, at := someLanes.Draw(t, "lane"), m.now.Add(-spans.Draw(t, "ago"))
			m.RecordStart(name, at)
			if _, ok := m.oracle.lanes[name]; ok {
				m.oracle.started[name] = append(m.oracle.started[name], at)
			}
		},
		"lane": func(t *rapid.T) {
			m.setLane(someLanes.Draw(t, "name"), Lane{
				Capacity: capacities.Draw(t, "capacity"), Paused: rapid.IntRange(0, 3).Draw(t, "paused") == 0,
				Starts: rapid.IntRange(0, 2).Draw(t, "starts"), Per: spans.Draw(t, "per"), Gap: spans.Draw(t, "gap"),
			})
		},
		"limit": func(t *rapid.T) {
			m.setLimit(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), capacities.Draw(t, "capacity"))
		},
		"": func(*rapid.T) {
			m.explain() // what is to start is not lost between a change and the calls of Next
			m.startAll()
			m.explain()
			m.explainLimits()
		},
	})
	m.everybodyStarts()
}

func (m *machine) drawItem(t *rapid.T) Item {
	sequence := uint64(len(m.items) + 1)
	for m.has(sequence) {
		sequence++
	}
	key := someKeys.Draw(t, "key")
	order := map[string]KeyOrder{"i": AnyOrder, "j": ByPriority}[key] // of most that wait for it
	if rapid.IntRange(0, 9).Draw(t, "another order") == 0 {
		order = rapid.SampledFrom([]KeyOrder{BySubmit, ByPriority, AnyOrder}).Draw(t, "order")
	}
	return Item{
		ID: makeRapidID(t, sequence), Lane: someLanes.Draw(t, "lane"), Limits: someLimits.Draw(t, "limits"), Key: key,
		KeyOrder: order, Begun: rapid.IntRange(0, 4).Draw(t, "begun") == 0,
		Priority: rapid.IntRange(-3, 3).Draw(t, "priority"),
		Since:    m.now.Add(-spans.Draw(t, "since")), Sequence: rapid.Uint64Range(1, 20).Draw(t, "sequence"),
	}
}

func makeRapidID(t *rapid.T, sequence uint64) statefs.ID {
	id, err := statefs.MakeID("g-j", noon, 1, sequence)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (m *machine) has(sequence uint64) bool {
	_, ok := m.items[makeRapidID(m.t, sequence)]
	return ok
}

// draw picks one of all that are there.
func (m *machine) draw(t *rapid.T) Item {
	return drawFrom(t, slices.Concat(m.oracle.waiting, m.oracle.kept, m.oracle.held))
}

func drawFrom(t *rapid.T, items []Item) Item {
	if len(items) == 0 {
		t.Skip("nobody is there")
	}
	return rapid.SampledFrom(items).Draw(t, "who")
}

func (m *machine) wait(item Item) {
	if item.KeyOrder == Arriving { // it has arrived
		item.KeyOrder = BySubmit
	}
	m.Enqueue(item)
	m.oracle.remove(item.ID)
	m.oracle.waiting = append(m.oracle.waiting, item)
	m.items[item.ID] = item
}

func (m *machine) keep(item Item) {
	if item.KeyOrder == BySubmit && rapid.Bool().Draw(m.t, "arriving") {
		item.KeyOrder = Arriving
	}
	m.KeepTurn(item)
	m.oracle.remove(item.ID)
	delete(m.items, item.ID)
	if item.Key != "" && item.KeyOrder != AnyOrder {
		m.oracle.kept = append(m.oracle.kept, item)
		m.items[item.ID] = item
	}
}

func (m *machine) hold(item Item) {
	m.Hold(item)
	m.items[item.ID] = item
	if slices.ContainsFunc(m.oracle.held, func(h Item) bool { return h.ID == item.ID && sameClaims(h, item) }) {
		return
	}
	m.oracle.remove(item.ID)
	m.oracle.held = append(m.oracle.held, item)
}

func sameClaims(a, b Item) bool {
	set := func(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
	return a.Lane == b.Lane && a.Key == b.Key && slices.Equal(set(a.Limits), set(b.Limits))
}

func (m *machine) leave(id statefs.ID) {
	m.Remove(id)
	m.oracle.remove(id)
	delete(m.items, id)
}

func (m *machine) setLane(name string, set Lane) {
	if old := m.oracle.lanes[name]; old.Starts != set.Starts || old.Gap != set.Gap {
		// The queue keeps only the starts that the old rate needs, so the oracle and the queue forget all.
		m.lane(name).rate = rate{}
		delete(m.oracle.started, name)
	}
	m.SetLane(name, set)
	m.oracle.lanes[name] = set
}

func (m *machine) setLimit(name string, capacity int) {
	m.SetLimit(name, capacity)
	m.oracle.limits[name] = capacity
}

// startAll starts what may, one at a time, and compares each with the oracle and with what must never be.
func (m *machine) startAll() {
	o := &m.oracle
	o.turnBack(m.now)
	for {
		want, some := o.next(m.now)
		id, ok := m.Next(m.now)
		if ok != some || id != want.ID {
			m.t.Fatalf("starts %s (%t), want %s (%t)\n%s", id, ok, want.ID, some, m.dump())
		}
		if !ok {
			break
		}
		o.remove(id)
		m.neverTooMany(want)
		o.held = append(o.held, want)
		o.started[want.Lane] = append(o.started[want.Lane], m.now)
	}
	for _, i := range o.waiting {
		if w, _ := m.Why(i.ID, m.now); w.Reason == statefs.WaitsToStart {
			m.t.Fatalf("%s could start and does not\n%s", i.ID, m.dump())
		}
	}
	at, ok := m.Wake(m.now)
	if want, some := o.wake(m.now); ok != some || !at.Equal(want) || ok && !at.After(m.now) {
		m.t.Fatalf("wakes at %s (%t), want %s (%t)\n%s", at, ok, want, some, m.dump())
	}
}

// neverTooMany checks, before item is held, that there is room for it.
func (m *machine) neverTooMany(item Item) {
	o := &m.oracle
	if set := o.lanes[item.Lane]; set.Paused || set.Capacity >= 0 &&
		len(o.holders(func(h Item) bool { return h.Lane == item.Lane })) >= set.Capacity {
		m.t.Fatalf("%s starts in a lane without room\n%s", item.ID, m.dump())
	}
	for _, name := range item.Limits {
		if capacity := o.limits[name]; capacity >= 0 &&
			len(o.holders(func(h Item) bool { return slices.Contains(h.Limits, name) })) >= capacity {
			m.t.Fatalf("%s starts with limit %s, which has no room\n%s", item.ID, name, m.dump())
		}
	}
	if item.Key != "" && len(o.holders(func(h Item) bool { return h.Key == item.Key })) > 0 {
		m.t.Fatalf("%s starts while its key is held\n%s", item.ID, m.dump())
	}
}

// explain compares the reasons of all waiting items, and the statistics of the lanes.
func (m *machine) explain() {
	o := &m.oracle
	for _, i := range o.waiting {
		got, ok := m.Why(i.ID, m.now)
		if want := o.why(i, m.now); !ok || !sameWaiting(got, want) {
			m.t.Fatalf("%s waits: %+v (%t), want %+v\n%s", i.ID, got, ok, want, m.dump())
		}
		priority, ok := m.FrontPriority(i.ID)
		moved := i
		moved.Priority = priority
		if !ok || slices.ContainsFunc(o.waiting, func(other Item) bool {
			return other.ID != i.ID && other.Lane == i.Lane &&
				o.before(other, moved)
		}) {
			m.t.Fatalf("%s is not in front with priority %d (%t)\n%s", i.ID, priority, ok, m.dump())
		}
	}
	for _, i := range o.held {
		if w, ok := m.Why(i.ID, m.now); ok {
			m.t.Fatalf("%s is held, and waits: %+v", i.ID, w)
		}
	}
	if m.Waiting() != len(o.waiting) {
		m.t.Fatalf("%d wait, want %d", m.Waiting(), len(o.waiting))
	}
	for _, l := range m.Lanes(m.now) {
		waiting, oldest := 0, time.Time{}
		for _, i := range o.waiting {
			if i.Lane == l.Name {
				waiting++
				if oldest.IsZero() || i.Since.Before(oldest) {
					oldest = i.Since
				}
			}
		}
		set, known := o.lanes[l.Name]
		running := len(o.holders(func(h Item) bool { return h.Lane == l.Name }))
		if l.Known != known || l.Lane != set || l.Running != running || l.Waiting != waiting || !l.Oldest.Equal(oldest) {
			m.t.Fatalf("lane: %+v\n%s", l, m.dump())
		}
	}
}

// explainLimits compares the statistics of the limits.
func (m *machine) explainLimits() {
	o := &m.oracle
	for _, l := range m.Limits() {
		capacity, known := o.limits[l.Name]
		running := len(o.holders(func(h Item) bool { return slices.Contains(h.Limits, l.Name) }))
		wrong := (l.Capacity == nil) != (capacity < 0) || l.Capacity != nil && *l.Capacity != capacity
		if l.Known != known || wrong || l.Running != running {
			m.t.Fatalf("limit: %+v\n%s", l, m.dump())
		}
	}
}

func sameWaiting(a, b statefs.Waiting) bool {
	if !a.Since.Equal(*b.Since) || (a.Until == nil) != (b.Until == nil) || a.Until != nil && !a.Until.Equal(*b.Until) {
		return false
	}
	a.Since, a.Until = b.Since, b.Until
	return a == b
}

// everybodyStarts gives all the room there can be: then everything that waits starts, and nothing is left behind when
// it has ended.
func (m *machine) everybodyStarts() {
	for _, name := range []string{"l", "m", "n"} {
		m.setLane(name, Lane{Capacity: Unlimited})
	}
	for _, name := range []string{"x", "y"} {
		m.setLimit(name, Unlimited)
	}
	for _, i := range slices.Clone(m.oracle.kept) {
		m.wait(i)
	}
	for len(m.oracle.waiting) > 0 {
		held := len(m.oracle.held)
		m.startAll()
		if len(m.oracle.held) == held && held == 0 {
			m.t.Fatalf("nothing starts although there is room\n%s", m.dump())
		}
		for _, i := range slices.Clone(m.oracle.held) {
			m.leave(i.ID)
		}
	}
	for _, i := range slices.Clone(m.oracle.held) {
		m.leave(i.ID)
	}
	if n := len(m.keys) + len(m.classes) + len(m.waiting) + len(m.turnKeepers) + len(m.held); n > 0 {
		m.t.Fatalf("%d things are left", n)
	}
}

func (m *machine) dump() string {
	var text strings.Builder
	fmt.Fprintf(&text, "now %s\nlanes %+v\nlimits %v\nstarted %v\n", m.now, m.oracle.lanes,
		m.oracle.limits, m.oracle.started)
	for _, i := range m.oracle.waiting {
		fmt.Fprintf(&text, "waits %+v\n", i)
	}
	for _, i := range m.oracle.kept {
		fmt.Fprintf(&text, "keeps its turn %+v\n", i)
	}
	for _, i := range m.oracle.held {
		fmt.Fprintf(&text, "held %+v\n", i)
	}
	return text.String()
}
