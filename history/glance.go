package history

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Lives is what lives, as one list is to see it.
type Lives struct {
	// Living may be nil.
	Living *Living
	// Rows are those of further operations, and of some that Living has otherwise.
	Rows []Packed
	// Hidden are rows that Living has of operations that live no longer, or that Rows has otherwise.
	Hidden []Packed
}

// glance is what one list has seen of a Living.
type glance struct {
	total int     // how many match
	found []found // those behind the cursor, the newest first; as many as were wanted, or all
	all   bool    // found are all
	// ending may be in the index: the first began of them ended before and are not among total and found, the others have ended since.
	ending []lived
	began  int
	hidden map[livedKey]bool
}

// glance looks for the first want matches behind the cursor, and counts all that match, in one moment. close must be called.
func (v *Lives) glance(f *filter, want int) *glance {
	g := &glance{hidden: make(map[livedKey]bool)}
	for _, rows := range [][]Packed{v.Rows, v.Hidden} {
		for _, row := range rows {
			if key, _, ok := keyOfRow(row); ok {
				g.hidden[key] = true
			}
		}
	}
	l := v.Living
	if l == nil {
		g.all = true
		return g
	}
	s := search{filter: f, glance: g, want: want, verdicts: make(map[*livedCount]bool)}
	l.mu.Lock()
	if l.lists == nil {
		l.lists = make(map[*glance]bool)
	}
	l.lists[g] = true
	for _, e := range l.ending {
		g.ending = append(g.ending, e)
	}
	g.began = len(g.ending)
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
	rows := s.sift(l, !counted)
	l.mu.Unlock()
	for i := range rows {
		if r, err := rows[i].row.parse(); err == nil && s.fits(&r) {
			s.total++
			s.offer(&rows[i])
		}
	}
	s.rank()
	return g
}

// close ends the list, and returns what has begun to end since.
func (g *glance) close(l *Living) []lived {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lists, g)
	return g.ending
}

func keyOfRow(row Packed) (key livedKey, r raw, ok bool) {
	r, err := row.parse()
	if err != nil {
		return key, r, false
	}
	return livedKey(timeKey(r.created, idKey(r.id, sequenceOf(r.id)))), r, true
}

// search is one glance at work.
type search struct {
	*filter
	*glance
	want     int
	verdicts map[*livedCount]bool // whether what is counted there can match
	last     *livedCount
	verdict  bool
	best     []lived // a heap, the oldest on top
}

// may reports whether a row can match by what is counted of it. Rows that follow each other mostly have the same answer.
func (s *search) may(c *livedCount) bool {
	if c == s.last {
		return s.verdict
	}
	verdict, known := s.verdicts[c]
	if !known {
		verdict = s.fitsDims(c.dims())
		s.verdicts[c] = verdict
	}
	s.last, s.verdict = c, verdict
	return verdict
}

// parsed reports whether a row has to be taken apart to tell whether it matches.
func (s *search) parsed() bool {
	return s.Key != "" || s.Tag != "" || s.Endpoint != "" || s.Number != 0 || len(s.text) > 0
}

// sum counts the matches by the counts alone.
func (s *search) sum(l *Living) (total int) {
	for _, c := range l.counts {
		if s.may(c) {
			total += c.n
		}
	}
	for key := range s.hidden {
		if block, at, has := l.find(key[:]); has && s.may(l.blocks[block][at].count) {
			total--
		}
	}
	return total
}

// walk goes from the cursor to ever older rows, until there are enough.
func (s *search) walk(l *Living) {
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
			if !s.may(e.count) || s.hidden[e.key] {
				continue
			}
			if len(s.found) == s.want {
				return
			}
			s.found = append(s.found, found{bytes.Clone(e.key[:]), e.row, true})
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

// sift looks at all rows, the newest first, and offers those that match. Those that have to be taken apart first it returns: that takes
// long, and needs no lock.
func (s *search) sift(l *Living, count bool) (rest []lived) {
	later, key, endpoint := s.parsed(), []byte(s.Key), []byte(s.Endpoint)
	for _, block := range slices.Backward(l.blocks) {
		for i := len(block) - 1; i >= 0; i-- {
			e := &block[i]
			switch {
			case !s.may(e.count) || s.updatedSince != 0 && e.updated < s.updatedSince || !s.fitsTimes(timeOf(e.key[:])) || s.hidden[e.key]:
			case later && (!bytes.Contains(e.row, key) || !bytes.Contains(e.row, endpoint) || s.Tag != "" && !bytes.Contains(e.row, s.tag)): // most can be told without taking them apart
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

// offer keeps a match while it is one of the newest behind the cursor.
func (s *search) offer(e *lived) {
	switch {
	case !s.behind(e):
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

// rank puts the best in order.
func (s *search) rank() {
	for i := range s.best {
		key := s.keyOf(&s.best[i])
		s.found = append(s.found, found{key[:], s.best[i].row, true})
	}
	newestFirst(s.found)
}

// keyOf is the key by which the list is sorted.
func (s *search) keyOf(e *lived) livedKey {
	if s.Sort != ByUpdated {
		return e.key
	}
	key := e.key
	binary.BigEndian.PutUint64(key[:8], uint64(e.updated)^1<<63)
	return key
}

func (s *search) behind(e *lived) bool {
	key := s.keyOf(e)
	return s.After == nil || bytes.Compare(key[:], s.After.key) < 0
}

func (s *search) older(a, b *lived) bool {
	of, other := s.keyOf(a), s.keyOf(b)
	return bytes.Compare(of[:], other[:]) < 0
}

func (s *search) up(heap []lived, i int) {
	for i > 0 && s.older(&heap[i], &heap[(i-1)/2]) {
		heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
		i = (i - 1) / 2
	}
}

func (s *search) down(heap []lived) {
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

// settled returns what lives and is not in the index, and how many of those match in all. enough is false when more has ended meanwhile
// than was looked for beyond the page: then the list has to be made again.
func (g *glance) settled(f *filter, v *Lives, has func(id []byte) bool, page int) (living []found, total int, enough bool) {
	living = liveMatches(f, v.Rows, has)
	total = g.total + len(living)
	ended := make(map[livedKey]bool)
	for i, e := range g.close(v.Living) {
		r, err := e.row.parse()
		if err != nil || !f.fits(&r) || g.hidden[e.key] || ended[e.key] {
			continue
		}
		ended[e.key] = true
		switch gone := has != nil && has(e.key[8:]); {
		case i < g.began && !gone:
			total++
			living = append(living, found{timeKey(f.sortTime(&r), e.key[8:]), e.row, true})
		case i >= g.began && gone:
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
