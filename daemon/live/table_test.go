package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func idOf(n int) statefs.ID {
	id, err := statefs.ParseID(fmt.Sprintf("g-j_2026-11-22_12-00-00_p1_r%d", n))
	if err != nil {
		panic(err)
	}
	return id
}

// TestRowsCountsAndChildrenFollowTheSnapshots changes a table at random and compares what it derives
// with a walk over its snapshots.
func TestRowsCountsAndChildrenFollowTheSnapshots(t *testing.T) {
	t.Parallel()
	states := slices.DeleteFunc(slices.Clone(statefs.States()), statefs.State.Terminal)
	rapid.Check(t, func(t *rapid.T) {
		var table Table[int]
		model, announced := map[statefs.ID]*Snapshot{}, map[statefs.ID]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			n := rapid.IntRange(1, 6).Draw(t, "which")
			id := idOf(n)
			if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
				if rapid.Bool().Draw(t, "ends first") {
					table.End(id)
				}
				table.Remove(&Snapshot{ID: id}, nil)
				delete(model, id)
				delete(announced, id)
				continue
			}
			if rapid.IntRange(0, 4).Draw(t, "withdraw") == 0 {
				table.Withdraw(id) // does nothing unless it is only announced
				if announced[id] {
					delete(model, id)
					delete(announced, id)
				}
				continue
			}
			rec := statefs.UnknownRecord(id, noon)
			rec.Lane = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "lane")
			for parent := range n {
				if rapid.Bool().Draw(t, "comes after") {
					rec.After = append(rec.After, idOf(parent+10))
				}
			}
			before := model[id]
			if before == nil {
				before = &Snapshot{ID: id}
			}
			if parents := before.Parents(); parents != nil {
				rec.After = parents // these never change, except to none
			}
			s := before.Next(rec, rapid.SampledFrom(states).Draw(t, "state"))
			s.Since = noon.Add(-time.Duration(rapid.IntRange(0, 9).Draw(t, "since")) * time.Second)
			switch {
			case model[id] == nil:
				table.Put(s) // not in the table: nothing
				if announced[id] = rapid.Bool().Draw(t, "announce"); announced[id] {
					if rapid.Bool().Draw(t, "expected before") {
						table.Announce(&Snapshot{ID: id})
						if _, s := table.Get(id); s != nil || !table.Announced(id) {
							t.Fatalf("%s is expected, and readers have %v", id, s)
						}
						checkTable(t, &table, model) // lists and counts do not have it
					}
					table.Announce(s)
				} else {
					table.Add(n, s)
				}
			case announced[id] && rapid.Bool().Draw(t, "take over"):
				table.Announce(s) // in the table: nothing
				table.Add(n, s)
				announced[id] = false
			default:
				table.Put(s)
			}
			model[id] = s
		}
		checkTable(t, &table, model)
	})
}

func checkTable(t *rapid.T, table *Table[int], model map[statefs.ID]*Snapshot) {
	counts, lanes, queued := map[statefs.State]int{}, map[string]int{}, 0
	children := map[statefs.ID][]statefs.ID{}
	for id, want := range model {
		if _, s := table.Get(id); s != want {
			t.Fatalf("%s is %+v, want %+v", id, s, want)
		}
		counts[want.State]++
		lanes[want.Lane.Value()]++
		if want.State == statefs.Queued {
			queued++
			for _, parent := range want.Parents() {
				children[parent] = append(children[parent], id)
			}
		}
	}
	if !maps.Equal(table.Counters().States(), counts) || len(table.All()) != len(model) || table.Rows().Len() != len(model) {
		t.Fatalf("%v, %d snapshots, %d rows, want %v", table.Counters().States(), len(table.All()), table.Rows().Len(), counts)
	}
	stats, all := table.Counters().Lanes(noon)
	ages := 0
	for _, bucket := range all.Ages {
		ages += bucket.Count
	}
	if ages != queued {
		t.Fatalf("%d ages are counted, %d operations are queued", ages, queued)
	}
	for _, lane := range stats {
		n := 0
		for _, count := range lane.States {
			n += count
		}
		if want := lanes[lane.Name]; lane.Name != "default" && n != want || lane.Name == "default" && n != lanes[""] {
			t.Fatalf("lane %s counts %d", lane.Name, n)
		}
	}
	for n := 10; n < 20; n++ {
		got, want := table.Children(idOf(n)), children[idOf(n)]
		slices.SortFunc(got, compare)
		slices.SortFunc(want, compare)
		if !slices.Equal(got, want) {
			t.Fatalf("children of %d: %v, want %v", n, got, want)
		}
	}
}

func compare(a, b statefs.ID) int { return int(a.Sequence()) - int(b.Sequence()) }

func TestAncestorsAreTheNearestFirst(t *testing.T) {
	t.Parallel()
	var table Table[int]
	add := func(n int, state statefs.State, parents ...statefs.ID) {
		rec := statefs.UnknownRecord(idOf(n), noon)
		rec.After = parents
		table.Add(n, (&Snapshot{ID: rec.ID}).Next(rec, state))
	}
	add(1, statefs.WaitingApproval)
	add(2, statefs.FailedManual, idOf(1))
	add(3, statefs.Queued, idOf(1))
	add(4, statefs.Queued, idOf(3), idOf(2), idOf(9)) // 9 has ended
	add(5, statefs.FailedManual)
	for child, want := range map[int]statefs.ID{4: idOf(2), 3: idOf(1), 2: idOf(1), 1: {}, 5: {}, 9: {}} {
		if got := table.AncestorNeedingPerson(idOf(child)); got != want {
			t.Errorf("%d waits for %s, want %s", child, got, want)
		}
	}
}

// TestSubscribersGetEachChangeInOrder changes a table from several goroutines and rebuilds it from its changes.
func TestSubscribersGetEachChangeInOrder(t *testing.T) {
	t.Parallel()
	var table Table[int]
	rebuilt, changes := map[statefs.ID]*Snapshot{}, 0
	table.Subscribe(func(c Change) {
		changes++
		id := cmp.Or(c.After, c.Before).ID
		if rebuilt[id] != c.Before {
			t.Errorf("a change of %s begins at %+v, and the one before it led to %+v", id, c.Before, rebuilt[id])
		}
		if rebuilt[id] = c.After; c.After == nil {
			delete(rebuilt, id)
		}
	})
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			for round := range 100 {
				rec := statefs.UnknownRecord(idOf(1+round%7), noon)
				next := (&Snapshot{ID: rec.ID}).Next(rec, statefs.Queued)
				switch (round + n) % 5 {
				case 0:
					table.Announce(next)
				case 1:
					table.Withdraw(rec.ID)
				case 2:
					table.Remove(next, nil)
				case 3:
					table.Put(next)
				default:
					table.Add(n, next)
				}
			}
		})
	}
	group.Wait()
	all := table.All()
	if len(all) != len(rebuilt) || changes == 0 {
		t.Fatalf("the table has %d operations, and %d changes lead to %d", len(all), changes, len(rebuilt))
	}
	for _, s := range all {
		if rebuilt[s.ID] != s {
			t.Errorf("the changes of %s lead to another snapshot", s.ID)
		}
	}
}
