package control

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
)

// lives returns what lives, for a list, and which of it is foreign. The markers say what that is, so an operation is here as soon as its
// submit was acknowledged. The daemon has the rows in order and knows of which of them it cannot be sure; only for those, and for what was
// submitted a moment ago, the markers are asked.
func (s *Server) lives(q *history.Query) (*history.Lives, map[statefs.ID]bool, error) {
	fresh := s.intake.Unseen() // before the others: what the daemon sees in between is in both
	living, unsettled, ok := s.status.Living()
	if !ok {
		rows, foreign, err := s.liveRows(q)
		return &history.Lives{Rows: rows}, foreign, err
	}
	out := &history.Lives{Living: living}
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
	for _, l := range unsettled {
		if l.Row != nil {
			out.Hidden = append(out.Hidden, l.Row)
		}
		state, err := s.tree.State(l.ID)
		if errors.Is(err, statefs.ErrNotLive) {
			s.intake.Vanished(l.ID)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if l.Row != nil && l.State == state {
			out.Rows = append(out.Rows, l.Row)
			continue
		}
		row, known, err := s.liveRow(liveOperation{id: l.ID, state: state}, l.Row, q.Group)
		if err != nil {
			return nil, nil, err
		}
		foreign[l.ID] = !known && l.ID.PID() != os.Getpid()
		out.Rows = append(out.Rows, row.Pack())
	}
	return out, foreign, nil
}

// liveRows returns the rows of what lives by a listing of jobs/, which costs as much as there is. The daemon has the rest in memory, and
// also knows those whose marker is being renamed at this moment.
func (s *Server) liveRows(q *history.Query) (rows []history.Packed, foreign map[statefs.ID]bool, err error) {
	known := make(map[statefs.ID]history.Live)
	for _, l := range s.status.Live() {
		known[l.ID] = l
	}
	markers, err := s.live()
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

// liveRow makes the row of a live operation with the state of its marker; has is its row in the daemon's memory, nil when there is
// none. known is false when there is no record either.
func (s *Server) liveRow(op liveOperation, has history.Packed, group string) (row history.Row, known bool, err error) {
	known = true
	if row, err = has.Unpack(); err != nil {
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

// unknownRow is the row of an operation of which the ID is all that is known.
func (s *Server) unknownRow(id statefs.ID, group string) history.Row {
	at := id.Time(time.Local)
	row := history.Row{ID: id, Created: at, Updated: at}
	if def := s.catalog.ByEndpoint(id.Endpoint()); def != nil {
		row.Group, row.Job = def.Group, def.Name
	} else if strings.HasPrefix(id.Endpoint(), group+"-") {
		row.Group = group // as far as the name tells
	}
	return row
}
