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
	// Index may be nil.
	Index *LiveIndex
	// Rows are operations missing from Index, and newer versions of some that are in it.
	Rows []Packed
	// Hidden are rows of Index to ignore: their operations are no longer live, or Rows has newer
	// versions.
	Hidden []Packed
}

// liveSnapshot is the state of a LiveIndex as one list sees it.
type liveSnapshot struct {
	total int     // how many match
	found []match // matches behind the cursor, the newest first; as many as were wanted, or all
	all   bool    // found has all of them
	// ending may be in the index. The first alreadyEnding of them ended before the snapshot and are
	// not in total and found; the others have ended since.
	ending        []liveRow
	alreadyEnding int
	hidden        map[liveKey]bool
}

// snapshot collects the first want matches behind the cursor, and counts all matches, atomically.
// The caller must call close.
func (v *LiveView) snapshot(f *filter, want int) *liveSnapshot {
	g, l := v.newSnapshot(), v.Index
	if l == nil {
		g.all = true
		return g
	}
	s := liveSearch{filter: f, liveSnapshot: g, want: want, verdicts: make(map[*liveCount]bool)}
	l.mu.Lock()
	l.register(g)
	counted := f.counted() && f.since == 0 && f.until == 0
	if counted {
		g.total = s.sum(l)
		if f.Sort != ByUpdated {
			s.walk(l)
			l.mu.Unlock()
			return g
		}
	}
	g.all = true
	rows := s.scan(l, !counted)
	l.mu.Unlock()
	for i := range rows {
		if r, err := rows[i].row.parse(); err == nil && s.matches(&r) {
			s.total++
			s.offer(&rows[i])
		}
	}
	s.sortBest()
	return g
}

// newSnapshot returns a snapshot that hides the rows that are not to be taken from the index.
func (v *LiveView) newSnapshot() *liveSnapshot {
	g := &liveSnapshot{hidden: make(map[liveKey]bool)}
	for _, row := range slices.Concat(v.Rows, v.Hidden) {
		if key, _, ok := keyOfRow(row); ok {
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
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.snapshots, g)
	return g.ending
}

func keyOfRow(row Packed) (key liveKey, r parsedRow, ok bool) {
	r, err := row.parse()
	if err != nil {
		return key, r, false
	}
	return liveKey(timeKey(r.created, idKey(r.id, sequenceOf(r.id)))), r, true
}

// liveSearch is a snapshot under construction.
type liveSearch struct {
	*filter
	*liveSnapshot
	want     int
	verdicts map[*liveCount]bool // whether rows of this count can match
	last     *liveCount
	verdict  bool
	best     []liveRow // a heap, the oldest on top
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

// needsParsing reports whether a row has to be decoded to decide whether it matches.
func (s *liveSearch) needsParsing() bool {
	return s.Key != "" || s.Tag != "" || s.Endpoint != "" || s.Number != 0 || len(s.text) > 0
}

// sum counts the matches by the counts alone.
func (s *liveSearch) sum(l *LiveIndex) (total int) {
	for _, c := range l.counts {
		if s.canMatch(c) {
			total += c.n
		}
	}
	for key := range s.hidden {
		if block, at, has := l.find(key[:]); has && s.canMatch(l.blocks[block][at].count) {
			total--
		}
	}
	return total
}

// walk collects matches from the cursor to older rows, until there are enough.
func (s *liveSearch) walk(l *LiveIndex) {
	if s.total == 0 {
		s.all = true
		return
	}
	block, at := len(l.blocks)-1, -1
	if block >= 0 {
		at = len(l.blocks[block]) - 1
	}
	if s.After != nil {
		if block, at, _ = l.find(s.After.key); block == len(l.blocks) {
			block--
		}
		at--
	}
	for ; block >= 0; block-- {
		for ; at >= 0; at-- {
			e := &l.blocks[block][at]
			if !s.canMatch(e.count) || s.hidden[e.key] {
				continue
			}
			if len(s.found) == s.want {
				return
			}
			s.found = append(s.found, match{bytes.Clone(e.key[:]), e.row, true})
			if len(s.found) == s.total {
				s.all = true // there are no more
				return
			}
		}
		if block > 0 {
			at = len(l.blocks[block-1]) - 1
		}
	}
	s.all = true
}

// scan examines all rows, the newest first, and offers the matching ones. It returns the rows that
// have to be decoded first: that takes long and needs no lock.
func (s *liveSearch) scan(l *LiveIndex, count bool) (rest []liveRow) {
	later, key, endpoint := s.needsParsing(), []byte(s.Key), []byte(s.Endpoint)
	for _, block := range slices.Backward(l.blocks) {
		for i := len(block) - 1; i >= 0; i-- {
			e := &block[i]
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
					s.total++
				}
				s.offer(e)
			}
		}
	}
	return rest
}

// needsPerson reports whether the operation, or an optional step of it, waits for a person.
func (e *liveRow) needsPerson() bool {
	return statefs.State(e.count.status).NeedsPerson() || e.row[1]&flagOptionalNeedsPerson != 0
}

// offer keeps a match while it is among the newest behind the cursor.
func (s *liveSearch) offer(e *liveRow) {
	switch {
	case !s.afterCursor(e):
	case len(s.best) < s.want:
		s.best = append(s.best, *e)
		s.up(s.best, len(s.best)-1)
	default:
		s.all = false
		if s.want > 0 && s.older(&s.best[0], e) {
			s.best[0] = *e
			s.down(s.best)
		}
	}
}

// sortBest appends best to found and sorts it.
func (s *liveSearch) sortBest() {
	for i := range s.best {
		key := s.keyOf(&s.best[i])
		s.found = append(s.found, match{key[:], s.best[i].row, true})
	}
	newestFirst(s.found)
}

// keyOf returns the key by which the list is sorted.
func (s *liveSearch) keyOf(e *liveRow) liveKey {
	if s.Sort != ByUpdated {
		return e.key
	}
	key := e.key
	binary.BigEndian.PutUint64(key[:8], uint64(e.updated)^1<<63)
	return key
}

func (s *liveSearch) afterCursor(e *liveRow) bool {
	key := s.keyOf(e)
	return s.After == nil || bytes.Compare(key[:], s.After.key) < 0
}

func (s *liveSearch) older(a, b *liveRow) bool {
	of, other := s.keyOf(a), s.keyOf(b)
	return bytes.Compare(of[:], other[:]) < 0
}

func (s *liveSearch) up(heap []liveRow, i int) {
	for i > 0 && s.older(&heap[i], &heap[(i-1)/2]) {
		heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
		i = (i - 1) / 2
	}
}

func (s *liveSearch) down(heap []liveRow) {
	for i := 0; ; {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(heap) && s.older(&heap[child], &heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// resolve returns the live matches that are not in the index, and the total of live matches. enough
// is false when more operations have ended since than were collected beyond the page: then the list
// has to be made again.
func (g *liveSnapshot) resolve(f *filter, v *LiveView, has func(id []byte) bool, page int) (living []match,
	total int, enough bool,
) {
	living = liveMatches(f, v.Rows, has)
	total = g.total + len(living)
	ended := make(map[liveKey]bool)
	for i, e := range g.close(v.Index) {
		r, err := e.row.parse()
		if err != nil || !f.matches(&r) || g.hidden[e.key] || ended[e.key] {
			continue
		}
		ended[e.key] = true
		switch gone := has != nil && has(e.key[8:]); {
		case i < g.alreadyEnding && !gone:
			total++
			living = append(living, match{timeKey(f.sortTime(&r), e.key[8:]), e.row, true})
		case i >= g.alreadyEnding && gone:
			total--
		}
	}
	kept := 0
	for _, m := range g.found {
		if has == nil || !has(m.key[8:]) {
			living = append(living, m)
			kept++
		}
	}
	return living, max(total, 0), g.all || kept >= page
}
