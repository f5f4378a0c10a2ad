package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// entry is one operation in the view.
type entry struct {
	ID       statefs.ID        `json:"id"`
	Lane     string            `json:"lane"`
	State    statefs.State     `json:"state"`
	Since    time.Time         `json:"since"`
	Progress *statefs.Progress `json:"progress,omitempty"`
	Waiting  *statefs.Waiting  `json:"waiting,omitempty"`
	Stalled  bool              `json:"stalled,omitempty"`
	// Why is the step at which it waits for a person and the reason, as far as known.
	Why string `json:"why,omitempty"`
}

// model holds the live operations: the initial list, updated by events. It is not safe for concurrent use.
type model struct {
	rows  map[statefs.ID]*entry
	moves []move // of the last rateWindow
	began time.Time
	// stale reports that events were lost, so that the operations have to be listed again.
	stale bool
}

// move is a start or an end of an operation.
type move struct {
	at  time.Time
	end bool
}

// rateWindow is the period over which the rates are computed.
const rateWindow = 10 * time.Second

// maxRows bounds how many operations are kept: no screen shows more, and the counts come from the daemon.
const maxRows = 1000

func newModel(now time.Time) *model {
	return &model{rows: make(map[statefs.ID]*entry), began: now}
}

// list replaces the model with a list of operations.
func (m *model) list(operations []client.Operation) {
	m.rows = make(map[statefs.ID]*entry)
	m.stale = false
	for i := range operations {
		op := &operations[i]
		if op.State.Live() {
			m.rows[op.ID] = &entry{
				ID: op.ID, Lane: cmp.Or(op.Lane, statefs.DefaultLane), State: op.State, Since: op.Since(),
				Progress: op.Progress, Waiting: op.Waiting, Stalled: op.StalledAt != nil,
			}
			if a := op.Attention; a != nil {
				m.rows[op.ID].Why = strings.TrimPrefix(a.Place()+": "+a.Message, ": ")
			}
		}
	}
}

// take applies an event.
func (m *model) take(e *client.Event, now time.Time) {
	row := m.rows[e.ID]
	switch {
	case e.Gap != nil:
		m.stale = true
	case e.To != "":
		m.move(e, row, now)
	case row == nil:
	case e.Progress != nil:
		row.Progress = e.Progress
	case e.Waiting != nil:
		row.Waiting = e.Waiting
	case e.Stalled != nil:
		row.Stalled = *e.Stalled
	}
}

func (m *model) move(e *client.Event, row *entry, now time.Time) {
	if e.To == statefs.Running && e.From == statefs.Queued || e.To.Terminal() {
		m.moves = append(m.moves, move{now, e.To.Terminal()})
	}
	switch {
	case e.To.Terminal():
		delete(m.rows, e.ID)
	case row == nil && len(m.rows) < maxRows:
		m.rows[e.ID] = &entry{ID: e.ID, Lane: cmp.Or(e.Lane, statefs.DefaultLane), State: e.To, Since: e.At}
	case row != nil:
		row.State, row.Since, row.Waiting, row.Stalled = e.To, e.At, nil, false
		row.Lane = cmp.Or(e.Lane, statefs.DefaultLane) // the lane of its step
	}
	if row := m.rows[e.ID]; row != nil {
		row.Why = ""
		if e.Error != nil && e.To.NeedsPerson() {
			row.Why = e.Error.Message
		}
	}
}

// rates returns starts and ends per second.
func (m *model) rates(now time.Time) (starts, ends float64) {
	from := now.Add(-rateWindow)
	m.moves = slices.DeleteFunc(m.moves, func(move move) bool { return move.at.Before(from) })
	for _, move := range m.moves {
		if move.end {
			ends++
		} else {
			starts++
		}
	}
	over := min(max(now.Sub(m.began), time.Second), rateWindow).Seconds()
	return starts / over, ends / over
}

func isBusy(state statefs.State) bool {
	return state == statefs.Running || state == statefs.Paused || state == statefs.Trailing
}

// busy returns running and paused operations, longest first; idle returns waiting operations, by lane and
// position.
func (m *model) busy() []*entry {
	rows := m.where(true)
	slices.SortFunc(rows, func(a, b *entry) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID.Sequence(), b.ID.Sequence()))
	})
	return rows
}

func (m *model) idle() []*entry {
	rows := m.where(false)
	slices.SortFunc(rows, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(forPerson(b.State), forPerson(a.State)), cmp.Compare(a.Lane, b.Lane),
			cmp.Compare(a.place(), b.place()), cmp.Compare(a.ID.Sequence(), b.ID.Sequence()))
	})
	return rows
}

// forPerson sorts operations that wait for a person before all others.
func forPerson(state statefs.State) int {
	if state.NeedsPerson() {
		return 1
	}
	return 0
}

// place returns the position in the queue; operations without one sort last.
func (r *entry) place() int {
	if r.Waiting == nil || r.Waiting.Position == 0 {
		return 1 << 30
	}
	return r.Waiting.Position
}

// where returns the operations that are busy, or the others.
func (m *model) where(busy bool) []*entry {
	rows := []*entry{}
	for _, row := range m.rows {
		if isBusy(row.State) == busy {
			rows = append(rows, row)
		}
	}
	return rows
}
