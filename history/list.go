package history

import (
	"bytes"
	"context"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// exactly is how far matches are counted one by one.
const exactly = 10_000

// Page is a part of a list.
type Page struct {
	Entries []Entry
	// Next is where the following page begins; nil after the last one.
	Next *Cursor
	// Total is how many match. It is a lower bound when Exact is false.
	Total int
	Exact bool
}

// Entry is one operation of a page.
type Entry struct {
	Row  Row
	Live bool
}

// found is a match that was not taken apart yet.
type found struct {
	key  []byte // time and ID, as the list is sorted
	data Packed
	live bool
}

// List returns the operations that match, live and ended, the newest first. live are the rows of what lives, seen before the call:
// one that has ended meanwhile counts as ended.
func (s *Store) List(ctx context.Context, q *Query, live []Packed) (Page, error) {
	return s.ListOf(ctx, q, &Lives{Rows: live})
}

// slack is how many matches beyond a page are looked for among what lives: so many may end while the list is made.
const slack = 64

// ListOf is List with what lives at hand in its order, which costs as much as the page shows and not as much as lives, unless the
// query narrows it down by more than what is counted or sorts it by its changes: then each live row is looked at.
func (s *Store) ListOf(ctx context.Context, q *Query, live *Lives) (Page, error) {
	f := q.filter()
	for more := slack; ; more *= 8 {
		page, enough, err := s.listOnce(ctx, f, live, more)
		if enough || err != nil {
			return page, err
		}
	}
}

// listOnce reports false when so much of what lives has ended meanwhile that the page may lack some.
func (s *Store) listOnce(ctx context.Context, f *filter, live *Lives, more int) (page Page, enough bool, err error) {
	wanted := 0
	if f.Limit > 0 {
		wanted = f.Offset + f.Limit + 1
	}
	seen := live.glance(f, wanted+more)
	defer seen.close(live.Living)
	if wantsLiveOnly(f.Query) {
		living, total, _ := seen.settled(f, live, nil, wanted)
		page, err = pageOf(f, nil, living, total, true)
		return page, true, err
	}
	if err := s.settle(ctx); err != nil {
		return page, false, err
	}
	err = s.view(func(x index) error {
		list := list{ctx: ctx, index: x, filter: f}
		living, lives, all := seen.settled(f, live, func(id []byte) bool { return x.id.Get(id) != nil }, wanted)
		list.plan()
		total, exact := list.total()
		if first, _ := x.unread.Cursor().First(); first != nil {
			exact = false // what cannot be read may match
		}
		ended := list.collect()
		if list.err != nil {
			return list.err
		}
		enough = all
		page, err = pageOf(f, ended, living, lives+total, exact)
		return err
	})
	return page, enough, err
}

// wantsLiveOnly reports whether nothing that has ended can match.
func wantsLiveOnly(q *Query) bool {
	if len(q.Statuses) == 0 {
		return false
	}
	return !slices.ContainsFunc(q.Statuses, statefs.State.Terminal)
}

// liveMatches returns the live operations that match and are not in the index; ended tells of that, and is nil when it is not asked.
func liveMatches(f *filter, live []Packed, ended func(id []byte) bool) []found {
	var out []found
	for _, data := range live {
		r, err := data.parse()
		if err != nil || !f.fits(&r) {
			continue
		}
		key := idKey(r.id, sequenceOf(r.id))
		if ended != nil && ended(key) {
			continue
		}
		out = append(out, found{timeKey(f.sortTime(&r), key), data, true})
	}
	return out
}

func newestFirst(matches []found) {
	slices.SortFunc(matches, func(a, b found) int { return bytes.Compare(b.key, a.key) })
}

func (f *filter) sortTime(r *raw) int64 {
	if f.Sort == ByUpdated {
		return r.updated
	}
	return r.created
}

// pageOf merges what lives with what has ended, which begins behind the cursor. total is how many match in all.
func pageOf(f *filter, ended, living []found, total int, exact bool) (Page, error) {
	page := Page{Total: total, Exact: exact}
	if f.After != nil {
		living = slices.DeleteFunc(living, func(l found) bool { return bytes.Compare(l.key, f.After.key) >= 0 })
	}
	all := slices.Concat(living, ended)
	newestFirst(all)
	all = all[min(f.Offset, len(all)):]
	for _, m := range all[:min(f.Limit, len(all))] {
		r, err := m.data.parse()
		if err != nil {
			return page, err
		}
		row, err := r.row()
		if err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, Entry{row, m.live})
	}
	if len(all) > f.Limit && f.Limit > 0 {
		page.Next = &Cursor{f.sort(), bytes.Clone(all[f.Limit-1].key)}
	}
	return page, nil
}

func (f *filter) sort() Sort {
	if f.Sort == ByUpdated {
		return ByUpdated
	}
	return ByCreated
}

// list answers one query from the index.
type list struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	index
	*filter
	spans []span // times of creation in which something can match, the newest first
	sum   int    // of the counts that match as a whole
	// partly are the days of which only a part of the time matches.
	partly map[string]bool
	err    error
}

type span struct{ from, to int64 }

// plan reads the counts: what they say alone, and where to look for the rest.
func (l *list) plan() {
	type fitting struct {
		day string
		count
	}
	var all []fitting
	l.partly = make(map[string]bool)
	l.err = l.eachCount(func(d dims, c count) {
		if !l.fitsDims(d) || l.since != 0 && c.maxCreated < l.since || l.until != 0 && c.minCreated >= l.until {
			return
		}
		all = append(all, fitting{string(d.day), c})
		l.spans = append(l.spans, span{c.minCreated, c.maxCreated})
		if !l.fitsTimes(c.minCreated) || !l.fitsTimes(c.maxCreated) {
			l.partly[string(d.day)] = true
		}
	})
	for _, c := range all {
		if !l.partly[c.day] {
			l.sum += int(c.n)
		}
	}
	l.spans = merge(l.spans)
}

// merge joins spans that overlap, and sorts them the newest first.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return -cmpSpan(a, b) })
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

func cmpSpan(a, b span) int {
	switch {
	case a.to != b.to:
		return sign(a.to > b.to)
	case a.from != b.from:
		return sign(a.from > b.from)
	}
	return 0
}

func sign(greater bool) int {
	if greater {
		return 1
	}
	return -1
}

// total counts what has ended and matches.
func (l *list) total() (n int, exact bool) {
	if l.err != nil {
		return 0, false
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
	one := func(_ []byte, _ Packed, r *raw) bool {
		if counted && !l.partly[string(dayOf(r.id))] {
			return true
		}
		if singly == exactly {
			exact = false
			return false
		}
		singly++
		return true
	}
	switch {
	case l.Number != 0:
		l.numbered(one)
	case l.updatedSince != 0:
		l.walk(l.updated, timeKey(l.updatedSince, nil), nil, nil, one)
	default:
		l.walk(l.created, nil, l.spans, nil, one)
	}
	return n + singly, exact
}

// collect returns the matches behind the cursor, as many as the page and what is passed over need, and one more.
func (l *list) collect() []found {
	var out []found
	if l.err != nil || l.Limit == 0 {
		return out
	}
	one := func(key []byte, data Packed, _ *raw) bool {
		out = append(out, found{key: key, data: data})
		return len(out) <= l.Offset+l.Limit
	}
	if l.Number != 0 {
		if l.After == nil { // as good as always it is one
			l.numbered(one)
		}
		return out
	}
	var after []byte
	if l.After != nil {
		after = l.After.key
	}
	if l.Sort == ByUpdated {
		var least []byte
		if l.updatedSince != 0 {
			least = timeKey(l.updatedSince, nil)
		}
		l.walk(l.updated, least, nil, after, one)
	} else {
		l.walk(l.created, nil, l.spans, after, one)
	}
	return out
}

// numbered calls fn for the rows with a number that match.
func (l *list) numbered(fn func([]byte, Packed, *raw) bool) {
	prefix := numberKey(l.Number)
	cursor := l.id.Cursor()
	for key, number := cursor.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, number = cursor.Next() {
		data := Packed(l.rows.Get(number))
		r, err := data.parse()
		if err != nil {
			l.err = err
			return
		}
		if l.fits(&r) && !fn(timeKey(l.sortTime(&r), key), data, &r) {
			return
		}
	}
}

// walk calls fn for the rows that match, the newest first, until it returns false: those behind after, not older than least and,
// unless it is nil, in spans.
func (l *list) walk(bucket *bolt.Bucket, least []byte, spans []span, after []byte, fn func([]byte, Packed, *raw) bool) {
	if bucket == l.created && len(spans) == 0 {
		return
	}
	cursor := bucket.Cursor()
	var key, number []byte
	if after != nil {
		key, number = before(cursor, after)
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
		data := Packed(l.rows.Get(number))
		r, err := data.parse()
		if err != nil {
			l.err = err
			return
		}
		if l.fits(&r) && !fn(key, data, &r) {
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
