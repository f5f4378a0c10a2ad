package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// script runs the lines of a test. Operations are called a, b, c, which is also the order in which they were
// submitted; times are distances from noon, when it starts.
type script struct {
	t   *testing.T
	q   *Queue
	now time.Time
}

func (s *script) step(words []string) {
	q, rest := s.q, words[1:]
	switch words[0] {
	case "ageing": // DURATION
		s.q = New(s.duration(rest[0]))
	case "at": // TIME
		s.now = noon.Add(s.duration(rest[0]))
	case "lane": // NAME CAPACITY [paused] [N/PER] [gap=DURATION]
		q.SetLane(rest[0], s.lane(rest[1:]))
	case "limit": // NAME CAPACITY
		q.SetLimit(rest[0], s.number(rest[1]))
	case "started": // LANE TIME
		q.RecordStart(rest[0], noon.Add(s.duration(rest[1])))
	case "wait": // NAME LANE [prio=N] [since=TIME] [key=K] [order=ORDER] [begun] [limits=X,Y]
		q.Enqueue(s.item(rest))
	case "keep": // as wait
		q.KeepTurn(s.item(rest))
	case "back": // NAME yes|no
		s.same("back", map[bool]string{true: "yes", false: "no"}[q.UndoStart(s.id(rest[0]))], rest[1])
	case "hold": // as wait
		q.Hold(s.item(rest))
	case "leave": // NAME
		q.Remove(s.id(rest[0]))
	case "starts": // [NAME...]: all that start now, in this order
		s.same("starts", strings.Join(s.startAll(), " "), strings.Join(rest, " "))
	case "why": // NAME REASON [limit=X] [by=NAME] [until=TIME] [pos=N]
		s.same("why", s.why(rest[0]), strings.Join(rest[1:], " "))
	case "wake": // TIME | -
		got := "-"
		if at, ok := q.Wake(s.now); ok {
			got = at.Sub(noon).String()
		}
		want := rest[0]
		if want != "-" {
			want = s.duration(want).String()
		}
		s.same("wake", got, want)
	case "front": // NAME PRIORITY
		priority, ok := q.FrontPriority(s.id(rest[0]))
		s.same("front", fmt.Sprint(priority, ok), rest[1]+" true")
	case "first": // [NAME...]: the result of Heads, by name
		var names []string
		for _, id := range q.Heads() {
			names = append(names, id.Endpoint())
		}
		slices.Sort(names)
		s.same("first", strings.Join(names, " "), strings.Join(rest, " "))
	case "lanes": // [NAME...]: all that are there, and nothing else is remembered
		var names []string
		for _, l := range q.Lanes(s.now) {
			names = append(names, l.Name)
		}
		s.same("lanes", strings.Join(names, " "), strings.Join(rest, " "))
		if len(rest) == 0 && len(q.limits)+len(q.keys)+len(q.classes)+len(q.waiting)+len(q.turnKeepers)+len(q.held) > 0 {
			s.t.Errorf("it remembers %v %v %v %v %v %v", q.limits, q.keys, q.classes, q.waiting, q.turnKeepers, q.held)
		}
	default:
		s.t.Fatalf("no such step: %q", words)
	}
}

func (s *script) startAll() (names []string) {
	for {
		id, ok := s.q.Next(s.now)
		if !ok {
			return names
		}
		names = append(names, id.Endpoint())
	}
}

func (s *script) why(name string) string {
	w, ok := s.q.Why(s.id(name), s.now)
	if !ok {
		return "does not wait"
	}
	words := []string{string(w.Reason)}
	if w.Limit != "" {
		words = append(words, "limit="+w.Limit)
	}
	if !w.HeldBy.IsZero() {
		words = append(words, "by="+w.HeldBy.Endpoint())
	}
	if w.Until != nil {
		words = append(words, "until="+strings.TrimSuffix(w.Until.Sub(noon).String(), "0s"))
	}
	return strings.Join(append(words, fmt.Sprintf("pos=%d", w.Position)), " ")
}

func (s *script) same(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (s *script) id(name string) statefs.ID { return makeID(s.t, name, uint64(name[0]-'a'+1)) }

func (s *script) item(words []string) Item {
	item := Item{ID: s.id(words[0]), Lane: words[1], Since: noon}
	for _, word := range words[2:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "prio":
			item.Priority = s.number(value)
		case "since":
			item.Since = noon.Add(s.duration(value))
		case "key":
			item.Key = value
		case "order":
			item.KeyOrder = map[string]KeyOrder{"priority": ByPriority, "arriving": Arriving, "any": AnyOrder}[value]
		case "begun":
			item.Begun = true
		case "limits":
			item.Limits = strings.Split(value, ",")
		default:
			s.t.Fatalf("no such word: %q", word)
		}
	}
	return item
}

func (s *script) lane(words []string) Lane {
	set := Lane{Capacity: s.number(words[0])}
	for _, word := range words[1:] {
		if starts, per, ok := strings.Cut(word, "/"); ok {
			set.Starts, set.Per = s.number(starts), s.duration(per)
		} else if gap, ok := strings.CutPrefix(word, "gap="); ok {
			set.Gap = s.duration(gap)
		} else {
			set.Paused = word == "paused"
		}
	}
	return set
}

func (s *script) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func makeID(tb testing.TB, name string, sequence uint64) statefs.ID {
	tb.Helper()
	id, err := statefs.MakeID(name, noon, 1, sequence)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}
