package history

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// maxExactCount is how many matches are counted one by one at most.
const maxExactCount = 10_000

// Page is a part of a list.
type Page struct {
	Entries []Entry
	// Next is where the following page begins; nil after the last page.
	Next *Cursor
	// Total is how many operations match. It is a lower bound when Exact is false.
	Total int
	Exact bool
}

// Entry is one operation of a page.
type Entry struct {
	Row  Row
	Live bool
}

// match is a matching row that is not decoded yet.
type match struct {
	key  []byte // time and ID, as the list is sorted
	data Packed
	live bool
}

// endedSlack is how many live matches are collected beyond a page: so many may end while the list
// is made.
const endedSlack = 64

// List returns the matching operations, live and ended, the newest first. live was read before the
// call: an operation that has ended since counts as ended. List costs as much as the page shows, not as
// much as lives. If the query filters by more than the counted dimensions, or sorts by time of
// change, every live row is examined.
func (s *Store) List(ctx context.Context, q *Query, live *LiveView) (Page, error) {
	f := q.filter()
	for more := endedSlack; ; more *= 8 {
		page, enough, err := s.listOnce(ctx, f, live, more)
		if enough || err != nil {
			return page, err
		}
	}
}

// listOnce returns false when so many live operations have ended since that the page may lack some.
func (s *Store) listOnce(ctx context.Context, f *filter, live *LiveView, more int) (page Page, enough bool, err error) {
	wanted := 0
	if f.Limit > 0 {
		wanted = f.Offset + f.Limit + 1
	}
	seen := live.snapshot(f, wanted+more)
	defer seen.close(live.Index)
	if wantsLiveOnly(f.Query) {
		living, totals, _ := seen.resolve(f, live, nil, wanted)
		page, err = pageOf(f, nil, living, max(sumOf(totals), 0), true)
		return page, true, err
	}
	unapplied, err := s.unapplied((*Row).isEnd)
	if err != nil {
		return page, false, err
	}
	err = s.view(func(x index) error {
		list := indexQuery{ctx: ctx, index: x, filter: f}
		late, has := x.late(unapplied)
		living, totals, all := seen.resolve(f, live, has, wanted)
		list.plan()
		list.narrow()
		total, exact := list.total()
		if first, _ := x.unread.Cursor().First(); first != nil {
			exact = false // an unreadable record may match
		}
		ended := list.collect()
		if list.err != nil {
			return list.err
		}
		lateEnded := f.lateMatches(late)
		enough = all
		page, err = pageOf(f, append(ended, lateEnded...), living, max(sumOf(totals), 0)+total+len(lateEnded), exact)
		return err
	})
	return page, enough, err
}

// lateMatches returns the rows that match.
func (f *filter) lateMatches(late map[string]Packed) (found []match) {
	for _, row := range late {
		r, err := row.parse()
		if err != nil || !f.matches(&r) {
			continue
		}
		found = append(found, match{key: timeKey(f.sortTime(&r), r.idKey()), data: row})
	}
	return found
}

// wantsLiveOnly reports whether no ended operation can match.
func wantsLiveOnly(q *Query) bool {
	return len(q.Statuses) > 0 && !slices.ContainsFunc(q.Statuses, statefs.State.Terminal)
}

func newestFirst(matches []match) {
	slices.SortFunc(matches, func(a, b match) int { return bytes.Compare(b.key, a.key) })
}

func (f *filter) sortTime(r *parsedRow) int64 {
	if f.Sort == ByUpdated {
		return r.updated
	}
	return r.created
}

// pageOf merges live matches with ended ones, and takes the page behind the cursor. total is how many
// match in all.
func pageOf(f *filter, ended, living []match, total int, exact bool) (Page, error) {
	page := Page{Total: total, Exact: exact}
	all := slices.Concat(living, ended)
	if f.After != nil {
		all = slices.DeleteFunc(all, func(m match) bool { return bytes.Compare(m.key, f.After.key) >= 0 })
	}
	newestFirst(all)
	all = all[min(f.Offset, len(all)):]
	for _, m := range all[:min(f.Limit, len(all))] {
		row, err := m.data.Unpack()
		if err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, Entry{row, m.live})
	}
	if len(all) > f.Limit && f.Limit > 0 {
		page.Next = &Cursor{cmp.Or(f.Sort, ByCreated), bytes.Clone(all[f.Limit-1].key)}
	}
	return page, nil
}

// indexQuery answers one query from the index.
type indexQuery struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	index
	*filter
	spans []span // times of creation in which rows can match, the newest first
	sum   int    // of the counts that match completely
	// partly are the days with counts that match only in a part of their time.
	partly map[string]bool
	// few are all matches, the newest first, if narrowed: they were found through the index of tags
	// or texts.
	few      []match
	narrowed bool
	err      error
}

type span struct{ from, to int64 }

// plan reads the counts: it sums the complete matches, and finds the spans to search for the
// rest.
func (l *indexQuery) plan() {
	matching := make(map[string]int) // by day
	l.partly = make(map[string]bool)
	l.err = l.eachCounters(func(d dimensions, c counters) {
		if !l.matchesDimensions(d) || l.since != 0 && c.maxCreated < l.since || l.until != 0 && c.minCreated >= l.until {
			return
		}
		matching[string(d.day)] += int(c.n)
		l.spans = append(l.spans, span{c.minCreated, c.maxCreated})
		if !l.matchesTimes(c.minCreated) || !l.matchesTimes(c.maxCreated) {
			l.partly[string(d.day)] = true
		}
	})
	for day, n := range matching {
		if !l.partly[day] {
			l.sum += n
		}
	}
	l.spans = merge(l.spans)
}

// merge joins overlapping spans and sorts them, the newest first.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(b.to, a.to), cmp.Compare(b.from, a.from)) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s.to >= out[n-1].from {
			out[n-1].from = min(out[n-1].from, s.from)
			continue
		}
		out = append(out, s)
	}
	return out
}

// narrow finds all matches through the index of tags or texts, unless there may be more than
// maxExactCount.
func (l *indexQuery) narrow() {
	if l.err != nil || l.Number != 0 || len(l.spans) == 0 {
		return
	}
	numbers, ok := l.candidates(l.filter, maxExactCount)
	if !ok {
		return
	}
	for _, number := range numbers {
		data := Packed(l.rows.Get(number))
		if data == nil {
			continue // it was removed
		}
		r, err := data.parse()
		if err != nil {
			l.err = err
			return
		}
		if r.flags&flagNeedsPerson == 0 && l.matches(&r) {
			l.few = append(l.few, match{key: timeKey(l.sortTime(&r), r.idKey()), data: data})
		}
	}
	newestFirst(l.few)
	l.narrowed = true
}

// total counts the ended operations that match.
func (l *indexQuery) total() (n int, exact bool) {
	if l.err != nil {
		return 0, false
	}
	if l.narrowed {
		return len(l.few), true
	}
	counted := l.counted()
	if counted && len(l.partly) == 0 {
		return l.sum, true
	}
	if counted {
		n = l.sum
	}
	exact = true
	singly := 0
	one := func(_ Packed, r *parsedRow) bool {
		if counted && !l.partly[string(dayOf(r.id))] {
			return true
		}
		if singly == maxExactCount {
			exact = false
			return false
		}
		singly++
		return true
	}
	l.each(l.updatedSince != 0, nil, one)
	return n + singly, exact
}

// collect returns the matches behind the cursor: as many as the offset and the page need, and one
// more.
func (l *indexQuery) collect() []match {
	var out []match
	if l.err != nil || l.Limit == 0 {
		return out
	}
	if l.narrowed {
		out = l.few
		if l.After != nil {
			out = slices.DeleteFunc(out, func(m match) bool { return bytes.Compare(m.key, l.After.key) >= 0 })
		}
		return out[:min(len(out), l.Offset+l.Limit+1)]
	}
	l.each(l.Sort == ByUpdated, l.After, func(data Packed, r *parsedRow) bool {
		out = append(out, match{key: timeKey(l.sortTime(r), r.idKey()), data: data})
		return len(out) <= l.Offset+l.Limit
	})
	return out
}

// each calls fn for the matches behind after, the newest first, until fn returns false.
func (l *indexQuery) each(byUpdated bool, after *Cursor, fn func(Packed, *parsedRow) bool) {
	switch {
	case l.Number != 0:
		if after == nil { // nearly always there is only one
			l.numbered(fn)
		}
	case byUpdated && l.updatedSince != 0:
		l.walk(l.updated, timeKey(l.updatedSince, nil), nil, after, fn)
	case byUpdated:
		l.walk(l.updated, nil, nil, after, fn)
	default:
		l.walk(l.created, nil, l.spans, after, fn)
	}
}

// numbered calls fn for the matching rows whose ID has the number of the query.
func (l *indexQuery) numbered(fn func(Packed, *parsedRow) bool) {
	for _, number := range withPrefix(l.id, numberKey(l.Number)) {
		if !l.visit(number, fn) {
			return
		}
	}
}

// visit calls fn with a row if it matches. It returns false when fn does, or the row cannot be read.
func (l *indexQuery) visit(number []byte, fn func(Packed, *parsedRow) bool) bool {
	data := Packed(l.rows.Get(number))
	r, err := data.parse()
	if err != nil {
		l.err = err
		return false
	}
	return !l.matches(&r) || fn(data, &r)
}

// walk calls fn for the matching rows, the newest first, until fn returns false. It visits rows
// behind after, not older than least and, unless spans is nil, in spans.
func (l *indexQuery) walk(bucket *bolt.Bucket, least []byte, spans []span, after *Cursor,
	fn func(Packed, *parsedRow) bool,
) {
	if bucket == l.created && len(spans) == 0 {
		return
	}
	cursor := bucket.Cursor()
	var key, number []byte
	if after != nil {
		key, number = before(cursor, after.key)
	} else {
		key, number = cursor.Last()
	}
	for n := 0; key != nil && bytes.Compare(key, least) >= 0; n++ {
		if n%1024 == 1023 && l.ctx.Err() != nil {
			l.err = l.ctx.Err()
			return
		}
		if spans != nil {
			at := timeOf(key)
			for len(spans) > 0 && at < spans[0].from {
				spans = spans[1:]
			}
			if len(spans) == 0 {
				return
			}
			if at > spans[0].to {
				key, number = before(cursor, timeKey(spans[0].to+1, nil))
				continue
			}
		}
		if !l.visit(number, fn) {
			return
		}
		key, number = cursor.Prev()
	}
}

// before moves a cursor to the last key that is lower than key.
func before(cursor *bolt.Cursor, key []byte) (at, value []byte) {
	if at, _ = cursor.Seek(key); at == nil {
		at, value = cursor.Last()
		if bytes.Compare(at, key) < 0 {
			return at, value
		}
	}
	return cursor.Prev()
}
