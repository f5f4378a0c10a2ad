package history

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/jobdir/jobdir/statefs"
)

// LiveView is the set of live operations for one list.
type LiveView struct {
	Index *LiveIndex
	// Rows are operations missing from Index, and newer versions of some that are in it.
	Rows []Packed
	// Hidden are rows of Index to ignore: their operations are no longer live, or Rows has newer
	// versions.
	Hidden []Packed
}

// liveSnapshot is the state of a LiveIndex as one list sees it.
type liveSnapshot struct {
	totals map[statefs.State]int // how many match, by status
	found  []match               // matches behind the cursor, the newest first; at least as many as were wanted, or all
	all    bool                  // found has all of them
	// ending may be in the index. The first alreadyEnding of them ended before the snapshot and are
	// not in totals and found; the others have ended since.
	ending        []liveRow
	alreadyEnding int
	hidden        map[liveKey]bool
}

// snapshot collects the first want matches behind the cursor, and counts all matches, atomically.
// The caller must call close.
func (v *LiveView) snapshot(f *filter, want int) *liveSnapshot {
	g, l := v.newSnapshot(), v.Index
	s := liveSearch{filter: f, liveSnapshot: g, want: want, verdicts: make(map[*liveCount]bool)}
	counted := f.counted() && f.since == 0 && f.until == 0
	var rows []liveRow
	l.mu.Lock()
	l.register(g)
	if counted {
		s.sum(l)
	}
	if counted && f.Sort != ByUpdated {
		s.walk(l)
	} else {
		rows = s.scan(l, !counted)
	}
	l.mu.Unlock()
	for i := range rows {
		if r, err := rows[i].row.parse(); err == nil && s.matches(&r) {
			s.totals[rows[i].state()]++
			s.offer(&rows[i])
		}
	}
	newestFirst(s.found)
	return g
}

// newSnapshot returns a snapshot that hides the rows that are not to be taken from the index.
func (v *LiveView) newSnapshot() *liveSnapshot {
	g := &liveSnapshot{totals: make(map[statefs.State]int), hidden: make(map[liveKey]bool)}
	for _, row := range slices.Concat(v.Rows, v.Hidden) {
		if key, ok := keyOfRow(row); ok {
			g.hidden[key] = true
		}
	}
	return g
}

// register makes the index tell a snapshot what ends from now on. The caller holds the lock.
func (l *LiveIndex) register(g *liveSnapshot) {
	if l.snapshots == nil {
		l.snapshots = make(map[*liveSnapshot]bool)
	}
	l.snapshots[g] = true
	g.ending = slices.Collect(maps.Values(l.ending))
	g.alreadyEnding = len(g.ending)
}

// close ends the snapshot, and returns the operations that have begun to end since.
func (g *liveSnapshot) close(l *LiveIndex) []liveRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.snapshots, g)
	return g.ending
}

func keyOfRow(row Packed) (key liveKey, ok bool) {
	r, err := row.parse()
	if err != nil {
		return key, false
	}
	return r.liveKey(), true
}

func (r *parsedRow) liveKey() liveKey { return liveKey(timeKey(r.created, r.idKey())) }

// liveSearch is a snapshot under construction.
type liveSearch struct {
	*filter
	*liveSnapshot
	want     int
	verdicts map[*liveCount]bool // whether rows of this count can match
	last     *liveCount
	verdict  bool
}

// canMatch reports whether a row can match by its counted dimensions. Consecutive rows mostly share
// a count, so the last verdict is cached.
func (s *liveSearch) canMatch(c *liveCount) bool {
	if c == s.last {
		return s.verdict
	}
	verdict, known := s.verdicts[c]
	if !known {
		verdict = s.matchesDimensions(c.dimensions())
		s.verdicts[c] = verdict
	}
	s.last, s.verdict = c, verdict
	return verdict
}

// sum counts the matches by the counts alone.
func (s *liveSearch) sum(l *LiveIndex) {
	for _, c := range l.counts {
		if s.canMatch(c) {
			s.totals[statefs.State(c.status)] += c.n
		}
	}
	for key := range s.hidden {
		if block, at, has := l.find(key[:]); has && s.canMatch(l.blocks[block][at].count) {
			s.totals[l.blocks[block][at].state()]--
		}
	}
}

// sumOf returns how many match in all.
func sumOf(totals map[statefs.State]int) (sum int) {
	for _, n := range totals {
		sum += n
	}
	return sum
}

// walk collects matches from the cursor to older rows, until there are enough.
func (s *liveSearch) walk(l *LiveIndex) {
	total := sumOf(s.totals)
	if s.all = total == 0; s.all {
		return
	}
	for e := range l.backward(s.After) {
		if !s.canMatch(e.count) || s.hidden[e.key] {
			continue
		}
		if len(s.found) == s.want {
			return
		}
		s.found = append(s.found, match{bytes.Clone(e.key[:]), e.row, true})
		if len(s.found) == total {
			break // there are no more
		}
	}
	s.all = true
}

// scan examines all rows, the newest first, and offers the matching ones. It returns the rows that
// have to be decoded first: that takes long and needs no lock.
func (s *liveSearch) scan(l *LiveIndex, count bool) (rest []liveRow) {
	s.all = true
	later := s.Key != "" || s.Tag != "" || s.Endpoint != "" || s.Number != 0 || len(s.text) > 0
	key, endpoint := []byte(s.Key), []byte(s.Endpoint)
	for e := range l.backward(nil) {
		switch {
		case !s.canMatch(e.count) || s.updatedSince != 0 && e.updated < s.updatedSince ||
			!s.matchesTimes(timeOf(e.key[:])) || s.hidden[e.key],
			s.Attention && !e.needsPerson():
		case later && (!bytes.Contains(e.row, key) || !bytes.Contains(e.row, endpoint) || s.Tag != "" &&
			!bytes.Contains(e.row, s.tag)):
			// Most rows can be excluded without decoding them.
		case later:
			rest = append(rest, *e)
		default:
			if count {
				s.totals[e.state()]++
			}
			s.offer(e)
		}
	}
	return rest
}

func (e *liveRow) state() statefs.State { return statefs.State(e.count.status) }

// needsPerson reports whether the operation, or an optional step of it, waits for a person.
func (e *liveRow) needsPerson() bool {
	return e.state().NeedsPerson() || e.row[1]&flagOptionalNeedsPerson != 0
}

// offer keeps a match that may be among the newest behind the cursor.
func (s *liveSearch) offer(e *liveRow) {
	key := e.key
	if s.Sort == ByUpdated {
		binary.BigEndian.PutUint64(key[:8], uint64(e.updated)^1<<63)
	}
	if s.After != nil && bytes.Compare(key[:], s.After.key) >= 0 ||
		!s.all && bytes.Compare(key[:], s.found[s.want-1].key) < 0 {
		return
	}
	s.found = append(s.found, match{bytes.Clone(key[:]), e.row, true})
	if len(s.found) == 2*s.want {
		newestFirst(s.found)
		s.found, s.all = slices.Delete(s.found, s.want, len(s.found)), false
	}
}

// resolve returns the live matches that are not in the index, and the totals of live matches by status. enough
// is false when more operations have ended since than were collected beyond the page: then the list
// has to be made again. has reports whether an operation is in the index; nil means that none is.
func (g *liveSnapshot) resolve(f *filter, v *LiveView, has func(id []byte) bool, page int) (living []match,
	totals map[statefs.State]int, enough bool,
) {
	if has == nil {
		has = func([]byte) bool { return false }
	}
	totals = maps.Clone(g.totals)
	add := func(row Packed, r *parsedRow) {
		totals[statefs.State(r.status)]++
		living = append(living, match{timeKey(f.sortTime(r), r.idKey()), row, true})
	}
	for _, row := range v.Rows {
		if r, err := row.parse(); err == nil && f.matches(&r) && !has(r.idKey()) {
			add(row, &r)
		}
	}
	ended := make(map[liveKey]bool)
	for i, e := range g.close(v.Index) {
		r, err := e.row.parse()
		if err != nil || !f.matches(&r) || g.hidden[e.key] || ended[e.key] {
			continue
		}
		ended[e.key] = true
		switch gone := has(e.key[8:]); {
		case i < g.alreadyEnding && !gone:
			add(e.row, &r)
		case i >= g.alreadyEnding && gone:
			totals[e.state()]--
		}
	}
	kept := 0
	for _, m := range g.found {
		if !has(m.key[8:]) {
			living = append(living, m)
			kept++
		}
	}
	return living, totals, g.all || kept >= page
}
