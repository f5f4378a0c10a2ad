package daemon

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// TestQueueFollowsTheTable changes the table at random. After each change the queue is as the snapshots alone
// describe it, and everything that may start is admitted and enqueued to be reconciled.
func TestQueueFollowsTheTable(t *testing.T) {
	t.Parallel()
	for i := range 10 { // a hundred sequences each
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, queueFollowsTheTable)
		})
	}
}

// tableModel is a table with the queue that follows it, and what its changes have left.
type tableModel struct {
	live.Table[int]
	*admission
	config    Config
	snapshots map[statefs.ID]*live.Snapshot
	managed   map[statefs.ID]bool
	reported  map[statefs.ID]bool        // foreign operations that the table does not have
	outside   map[statefs.ID]*statefs.ID // waiting operations that may have to wait for others: of this list, if not nil
	enqueued  map[statefs.ID]bool
}

func queueFollowsTheTable(t *rapid.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	m := &tableModel{
		config: Config{
			Lanes: map[string]lanes.LaneConfig{
				"one": {Lane: queue.Lane{Capacity: 1}}, "two": {Lane: queue.Lane{Capacity: 2}},
			},
			Limits: map[string]int{"tool": 1},
		},
		snapshots: map[statefs.ID]*live.Snapshot{}, managed: map[statefs.ID]bool{}, reported: map[statefs.ID]bool{},
		outside: map[statefs.ID]*statefs.ID{}, enqueued: map[statefs.ID]bool{},
	}
	m.admission = newAdmission(&m.config, func(id statefs.ID) { m.enqueued[id] = true }, func() time.Time { return now })
	m.reserve = func() (func(), error) { return func() {}, nil }
	m.onChange, m.onTrial = func() {}, func(string) {}
	m.Subscribe(m.note)
	m.Subscribe(m.follow)
	some := func(t *rapid.T, pid int) statefs.ID {
		id, err := statefs.ParseID(fmt.Sprintf("g-j_2026-11-24_12-00-00_p%d_r%d", pid, rapid.IntRange(1, 4).Draw(t, "number")))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	own := func(t *rapid.T) statefs.ID { return some(t, os.Getpid()) }
	foreign := func(t *rapid.T) statefs.ID { return some(t, 1) }
	either := func(t *rapid.T) statefs.ID {
		return some(t, rapid.SampledFrom([]int{1, os.Getpid()}).Draw(t, "process"))
	}
	t.Repeat(map[string]func(*rapid.T){
		"expect": func(t *rapid.T) {
			var recs []*statefs.Record
			process := rapid.SampledFrom([]func(*rapid.T) statefs.ID{own, foreign}).Draw(t, "of")
			for range rapid.IntRange(1, 3).Draw(t, "length") {
				id := process(t)
				if m.snapshots[id] == nil && !slices.ContainsFunc(recs, func(r *statefs.Record) bool { return r.ID == id }) {
					recs = append(recs, &statefs.Record{ID: id, CreatedAt: now, Key: drawKey(t)})
				}
			}
			m.Announce(expectations(recs)...)
		},
		"announce": func(t *rapid.T) {
			m.Announce(queuedAt(own(t), live.Place{Standing: decide.Arriving}, now))
		},
		"withdraw": func(t *rapid.T) { m.Withdraw(m.one(t, false)) },
		"take over": func(t *rapid.T) {
			id := either(t)
			if rapid.Bool().Draw(t, "announced") {
				id = m.one(t, false)
			}
			if m.managed[id] {
				return
			}
			standing := rapid.SampledFrom([]decide.Standing{decide.Arriving, decide.Holding, decide.Outside}).Draw(t, "standing")
			m.managed[id] = true
			m.Add(1, queuedAt(id, drawPlace(t, id, standing, now), now))
		},
		"place": func(t *rapid.T) {
			id := m.one(t, true)
			standings := []decide.Standing{decide.Waiting, decide.Waiting, decide.Holding, decide.KeepsTurn, decide.Outside}
			next := *m.snapshots[id]
			at := drawPlace(t, id, rapid.SampledFrom(standings).Draw(t, "standing"), now)
			next.Place, next.List = at, nil
			m.Put(&next)
		},
		"remove": func(t *rapid.T) {
			id := m.one(t, true)
			m.Remove(m.snapshots[id], nil)
			delete(m.managed, id)
		},
		"event": func(t *rapid.T) {
			id := foreign(t)
			m.noteForeign([]watchKey{{id: id}}, func(id statefs.ID) bool { return m.managed[id] })
			if !m.managed[id] {
				m.reported[id] = true
			}
		},
		"reconciled": func(t *rapid.T) {
			id := foreign(t)
			delete(m.reported, id)
			m.reconciled(id, nil)
		},
		"enable": func(*rapid.T) { m.enable() },
		"":       func(t *rapid.T) { m.check(t, now) },
	})
}

// note keeps what a change leaves beside the queue.
func (m *tableModel) note(c live.Change) {
	id := cmp.Or(c.After, c.Before).ID
	if c.After == nil || c.After.State != "" {
		delete(m.reported, id)
	}
	m.snapshots[id] = c.After
	before, after := live.Place{}, live.Place{}
	if c.Before != nil {
		before = c.Before.Place
	}
	if c.After == nil {
		delete(m.snapshots, id)
	} else {
		after = c.After.Place
	}
	switch {
	case after.Standing != decide.Waiting:
		delete(m.outside, id)
	case before.Standing == decide.Arriving:
		m.outside[id] = c.Before.List
	case before != after:
		list := m.outside[id]
		m.outside[id] = list // it is placed anew
	}
}

// one draws an operation that is managed, or announced.
func (m *tableModel) one(t *rapid.T, managed bool) statefs.ID {
	var ids []statefs.ID
	for id := range m.snapshots {
		if m.managed[id] == managed {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("no operation to choose yet: rapid draws another action")
	}
	slices.SortFunc(ids, func(a, b statefs.ID) int { return cmp.Compare(a.String(), b.String()) })
	return rapid.SampledFrom(ids).Draw(t, "operation")
}

func queuedAt(id statefs.ID, at live.Place, now time.Time) *live.Snapshot {
	return (&live.Snapshot{ID: id, Place: at}).Next(statefs.UnknownRecord(id, now), statefs.Queued)
}

func drawKey(t *rapid.T) string { return rapid.SampledFrom([]string{"", "k", "l"}).Draw(t, "key") }

func drawPlace(t *rapid.T, id statefs.ID, standing decide.Standing, now time.Time) live.Place {
	if standing == decide.Outside {
		return live.Place{}
	}
	return live.Place{Standing: standing, Item: &queue.Item{
		ID: id, Lane: rapid.SampledFrom([]string{"one", "two", "default", "nowhere"}).Draw(t, "lane"),
		Limits: rapid.SampledFrom([][]string{nil, {"tool"}}).Draw(t, "limits"), Key: drawKey(t),
		KeyOrder: rapid.SampledFrom([]queue.KeyOrder{queue.BySubmit, queue.ByPriority, queue.AnyOrder}).Draw(t, "order"),
		Begun:    rapid.Bool().Draw(t, "begun"), Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
		Since: now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "since")) * time.Second),
	}}
}

// waitsOutside reports whether an operation that waits must not start yet: the rest of its list arrives, or an
// operation with a lower number was reported and may have its key.
func (m *tableModel) waitsOutside(item *queue.Item) bool {
	list, is := m.outside[item.ID]
	if !is {
		return false
	}
	for _, s := range m.snapshots {
		if s.Place.Standing == decide.Arriving && s.List != nil && list != nil && *s.List == *list {
			return true
		}
	}
	for other := range m.reported {
		if item.Key != "" && item.KeyOrder != queue.AnyOrder && !item.Begun && other.Sequence() < item.ID.Sequence() {
			return true
		}
	}
	delete(m.outside, item.ID) // it is in the queue from now on
	return false
}

func (m *tableModel) check(t *rapid.T, now time.Time) {
	m.admit()
	want := newAdmission(&m.config, nil, nil).queue
	for id, s := range m.snapshots {
		_, admitted := m.admitted[id]
		_, blocked := m.blocked[id]
		switch at := s.Place; {
		case admitted && at.Standing != decide.Waiting:
			t.Fatalf("%s is admitted, and its standing is %d", id, at.Standing)
		case admitted && !m.enqueued[id]:
			t.Fatalf("%s is admitted, and its reconcile is not enqueued", id)
		case at.Standing == decide.Holding, admitted:
			delete(m.outside, id) // an admitted operation is in the queue
			want.Hold(*at.Item)
		case at.Standing == decide.Waiting && blocked != m.waitsOutside(at.Item):
			t.Fatalf("%s waits outside of the queue: %t", id, blocked)
		case at.Standing == decide.Waiting && !blocked:
			want.Enqueue(*at.Item)
		case at.Item != nil:
			item := *at.Item
			if at.Standing == decide.Arriving && item.KeyOrder == queue.BySubmit {
				item.KeyOrder = queue.Arriving
			}
			want.KeepTurn(item)
		}
	}
	if want.Ready(now) && m.open {
		id, _ := want.Next(now)
		t.Fatalf("%s may start and is not admitted", id)
	}
	if got, want := m.queue.Lanes(now), want.Lanes(now); !slices.Equal(got, want) {
		t.Fatalf("the lanes are\n%+v, want\n%+v", got, want)
	}
	for id := range m.snapshots {
		_, held := m.queue.Held(id)
		_, wantHeld := want.Held(id)
		got, waits := m.queue.Why(id, now)
		why, wantWaits := want.Why(id, now)
		if held != wantHeld || waits != wantWaits || got.Reason != why.Reason || got.Position != why.Position {
			t.Fatalf("%s: held %t, waits %t: %+v; want %t, %t: %+v", id, held, waits, got, wantHeld, wantWaits, why)
		}
	}
	if len(m.blocked) > len(m.snapshots) || len(m.arriving) > len(m.snapshots) {
		t.Fatalf("%d blocked, %d lists arrive, %d operations", len(m.blocked), len(m.arriving), len(m.snapshots))
	}
}
