package queue

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// With ageing, a waiting item starts after a bounded number of others, however many more urgent items arrive:
// items that arrive too late for their priority to compensate come after it. Without ageing it may wait for
// ever.
func TestNobodyStarvesWithAgeing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ageing := time.Duration(rapid.IntRange(0, 3).Draw(t, "ageing")) * time.Second
		low := Item{ID: makeRapidID(t, 1), Lane: "l", Priority: -rapid.IntRange(0, 5).Draw(t, "low"), Since: noon}
		low.Key = rapid.SampledFrom([]string{"", "k", "other"}).Draw(t, "its key")
		low.KeyOrder = rapid.SampledFrom([]KeyOrder{BySubmit, ByPriority}).Draw(t, "its order")
		high := rapid.IntRange(1, 5).Draw(t, "high")
		key := rapid.SampledFrom([]string{"", "k"}).Draw(t, "key of the others")
		q := New(ageing)
		q.SetLane("l", Lane{Capacity: 1})
		q.Enqueue(low)
		// One more urgent than it comes, and one starts and ends, each second.
		const seconds = 100
		now, served := noon, -1
		for n := range seconds {
			q.Enqueue(Item{
				ID: makeRapidID(t, uint64(n+2)), Lane: "l", Priority: high, Since: now, Key: key,
				KeyOrder: ByPriority,
			})
			id, ok := q.Next(now)
			if !ok {
				t.Fatalf("nothing starts after %d seconds", n)
			}
			q.Remove(id)
			if id == low.ID {
				served = n
				break
			}
			now = now.Add(time.Second)
		}
		bound := int(time.Duration(high-low.Priority) * ageing / time.Second)
		headOfKey := low.Key != "" && low.Key == key && low.KeyOrder == BySubmit // the others wait for it
		switch {
		case headOfKey && served != 0:
			t.Errorf("it is the first of its key and starts after %d others", served)
		case headOfKey:
		case ageing == 0 && served >= 0:
			t.Errorf("without ageing it starts after %d more urgent ones, while another is there", served)
		case ageing > 0 && (served < 0 || served > bound+1):
			t.Errorf("it starts after %d others, want at most %d", served, bound+1)
		}
	})
}
