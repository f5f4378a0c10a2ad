package control

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// maxMarkerChecks bounds for how many recent submits a list checks the marker. The others are listed as they were
// submitted until the daemon has seen them: after a flood of submits a list does not check each marker.
const maxMarkerChecks = 1000

// liveView returns the live operations for a list, and which of them are foreign. The markers decide, so an operation
// is listed as soon as its submit is acknowledged. The daemon has the sorted rows and knows which of them may be
// outdated; liveView checks only the markers of these and of recent submits.
func (s *liveTable) liveView(q *history.Query) (*history.LiveView, map[statefs.ID]bool, error) {
	fresh := s.intake.Untracked() // first: an operation that the daemon sees in between is in both
	living, unsettled, ok := s.daemon.LiveIndex()
	if !ok {
		rows, foreign, err := s.liveRows(q)
		return &history.LiveView{Rows: rows}, foreign, err
	}
	out := &history.LiveView{Index: living}
	foreign := make(map[statefs.ID]bool)
	asked := make(map[statefs.ID]bool, len(unsettled))
	for _, l := range unsettled {
		asked[l.ID] = true
	}
	for _, id := range fresh {
		if !asked[id] {
			unsettled = append(unsettled, history.Live{ID: id})
		}
	}
	for i, l := range unsettled {
		known := l.Row
		if l.Row != nil {
			out.Hidden = append(out.Hidden, l.Row)
		} else if known = s.intake.Row(l.ID); known != nil && i >= maxMarkerChecks {
			foreign[l.ID] = true // may have ended: then the list leaves it out
			out.Rows = append(out.Rows, known)
			continue
		}
		state, err := l.State, error(nil)
		// The state of a foreign marker is that of its last event; with 100,000 of them, a list checks none.
		if state == "" || l.Row != nil && !s.tree.HasMarker(l.ID, state) {
			state, err = s.tree.State(l.ID)
		}
		if errors.Is(err, statefs.ErrNotLive) {
			s.intake.MarkVanished(l.ID)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if l.Row != nil && l.State == state {
			out.Rows = append(out.Rows, l.Row)
			continue
		}
		row, ours, err := s.liveRow(liveOperation{id: l.ID, state: state}, known, q.Group)
		if err != nil {
			return nil, nil, err
		}
		if !ours && l.ID.PID() != os.Getpid() {
			foreign[l.ID] = true
			s.strangers.add(l.ID) // final: a ready daemon has restored the records that a crash lost
		}
		out.Rows = append(out.Rows, row.Pack())
	}
	s.strangers.retain(foreign)
	return out, foreign, nil
}

// liveRows returns the rows of the live operations by listing jobs/, which costs time proportional to their number.
// It adds the operations that only the daemon knows, because their marker is being renamed at this moment.
func (s *liveTable) liveRows(q *history.Query) (rows []history.Packed, foreign map[statefs.ID]bool, err error) {
	known := make(map[statefs.ID]history.Live)
	for _, l := range s.daemon.Live() {
		known[l.ID] = l
	}
	markers, err := s.list()
	if err != nil {
		return nil, nil, err
	}
	foreign = make(map[statefs.ID]bool)
	for _, op := range markers {
		l, ok := known[op.id]
		delete(known, op.id)
		if ok && l.State == op.state {
			rows = append(rows, l.Row)
			continue
		}
		row, _, err := s.liveRow(op, l.Row, q.Group)
		if err != nil {
			return nil, nil, err
		}
		foreign[op.id] = op.foreign
		rows = append(rows, row.Pack())
	}
	for id, l := range known {
		switch _, err := s.tree.State(id); {
		case err == nil:
			rows = append(rows, l.Row)
		case !errors.Is(err, statefs.ErrNotLive):
			return nil, nil, err
		}
	}
	return rows, foreign, nil
}

// liveRow returns the row of a live operation with the state of its marker. has is its row in the daemon's memory, or
// nil. known is false when there is no record either.
func (s *liveTable) liveRow(op liveOperation, has history.Packed, group string) (row history.Row, known bool, err error) {
	known = true
	if row, err = has.Unpack(); err != nil {
		if s.strangers.has(op.id) {
			row = s.unknownRow(op.id, group)
			row.Status, row.Number = op.state, 0
			return row, false, nil
		}
		rec, err := s.tree.ReadRecord(op.id)
		switch {
		case err == nil:
			row = history.RowOf(rec)
		case errors.Is(err, fs.ErrNotExist), isUnreadable(err):
			row = s.unknownRow(op.id, group)
		default:
			return row, false, err
		}
		known = !errors.Is(err, fs.ErrNotExist)
	}
	row.Status, row.Number = op.state, 0
	return row, known, nil
}

// unknownRow returns the row of an operation that is only known by its ID.
func (s *liveTable) unknownRow(id statefs.ID, group string) history.Row {
	at := id.Time(time.Local)
	row := history.Row{ID: id, Created: at, Updated: at}
	if def := s.catalog.ByEndpoint(id.Endpoint()); def != nil {
		row.Group, row.Job = def.Group, def.Name
	} else if strings.HasPrefix(id.Endpoint(), group+"-") {
		row.Group = group // a guess by the name
	}
	return row
}
