package history

import (
	"bytes"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// Living holds the rows of what lives in the order of creation, and counts them, so that a page of a list costs what it shows and not
// what there is. Its owner puts in every change; the zero value is empty. It is safe for concurrent use.
//
//	Put ──▶ blocks, counts ──End──▶ ending ──Remove──▶ (the index has it)
//
// An operation that ends is in the index a moment before it lives no longer. From End on it is looked for there, one by one, so that
// it comes once in each list and counts once.
type Living struct {
	mu     sync.Mutex
	blocks [][]lived // the oldest first; none is empty or longer than blockSize
	counts map[livedDims]*livedCount
	ending map[livedKey]lived
	// lists are those that are being made; they are told what begins to end meanwhile.
	lists map[*glance]bool
}

// blockSize bounds what is moved when a row is put in between others.
const blockSize = 512

// livedKey is the time of creation and the ID, as lists are sorted.
type livedKey [cursorSize]byte

// lived is one row.
type lived struct {
	key     livedKey
	updated int64
	row     Packed
	count   *livedCount
}

// livedDims are what is counted apart, as dims, and livedCount is how many there are of each.
type livedDims struct{ day, status, job, group, lane, result string }

type livedCount struct {
	livedDims
	n int
}

func (c *livedCount) dims() dims {
	return dims{[]byte(c.day), []byte(c.status), []byte(c.job), []byte(c.group), []byte(c.lane), []byte(c.result)}
}

func livedKeyOf(created int64, id statefs.ID) livedKey { return livedKey(timeKey(created, keyOf(id))) }

// Put enters the row of an operation, in the place of the one it had. The time of creation must not change.
func (l *Living) Put(id statefs.ID, row Packed) {
	r, err := row.parse()
	if err != nil {
		return // nobody packs such a row
	}
	e := lived{key: livedKeyOf(r.created, id), updated: r.updated, row: row}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.count = l.counter(&r)
	if _, ends := l.ending[e.key]; ends {
		l.ending[e.key] = e // it may be in the index
		return
	}
	e.count.n++
	block, at, has := l.find(e.key[:])
	if has {
		l.uncount(l.blocks[block][at])
		l.blocks[block][at] = e
		return
	}
	if len(l.blocks) == 0 {
		l.blocks = [][]lived{{e}}
		return
	}
	l.blocks[block] = slices.Insert(l.blocks[block], at, e)
	if full := l.blocks[block]; len(full) > blockSize {
		// Almost all come in order: what is behind stays nearly full, and the new block has room.
		cut := blockSize / 2
		if block == len(l.blocks)-1 && at == len(full)-1 {
			cut = blockSize
		}
		rest := append(make([]lived, 0, blockSize+1), full[cut:]...)
		clear(full[cut:])
		l.blocks[block] = full[:cut]
		l.blocks = slices.Insert(l.blocks, block+1, rest)
	}
}

// End says that an operation ends: it is about to be entered into the index. row is the one that it has here.
func (l *Living) End(id statefs.ID, row Packed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, has := l.take(id, row)
	if !has {
		return
	}
	if l.ending == nil {
		l.ending = make(map[livedKey]lived)
	}
	l.ending[e.key] = e
	for g := range l.lists {
		g.ending = append(g.ending, e)
	}
}

// Remove forgets an operation. row is the one that it has here.
func (l *Living) Remove(id statefs.ID, row Packed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, err := row.parse(); err == nil {
		delete(l.ending, livedKeyOf(r.created, id))
	}
	l.take(id, row)
}

// Len is how many live.
func (l *Living) Len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.counts {
		n += c.n
	}
	return n + len(l.ending)
}

// take takes a row out of the blocks; false when it is not there.
func (l *Living) take(id statefs.ID, row Packed) (e lived, has bool) {
	r, err := row.parse()
	if err != nil {
		return e, false
	}
	key := livedKeyOf(r.created, id)
	block, at, has := l.find(key[:])
	if !has {
		return e, false
	}
	e = l.blocks[block][at]
	l.uncount(e)
	if l.blocks[block] = slices.Delete(l.blocks[block], at, at+1); len(l.blocks[block]) == 0 {
		l.blocks = slices.Delete(l.blocks, block, block+1)
	}
	return e, true
}

// find returns where a key is, or where it belongs.
func (l *Living) find(key []byte) (block, at int, has bool) {
	block, has = slices.BinarySearchFunc(l.blocks, key, func(b []lived, key []byte) int { return bytes.Compare(b[0].key[:], key) })
	if !has && block > 0 {
		block--
	}
	if block == len(l.blocks) {
		return block, 0, false
	}
	at, has = slices.BinarySearchFunc(l.blocks[block], key, func(e lived, key []byte) int { return bytes.Compare(e.key[:], key) })
	return block, at, has
}

func (l *Living) counter(r *raw) *livedCount {
	day := dayOf(r.id)
	if c := l.counts[livedDims{string(day), string(r.status), string(r.job), string(r.group), string(r.lane), string(r.result)}]; c != nil {
		return c
	}
	c := &livedCount{livedDims: livedDims{string(day), string(r.status), string(r.job), string(r.group), string(r.lane), string(r.result)}}
	if l.counts == nil {
		l.counts = make(map[livedDims]*livedCount)
	}
	l.counts[c.livedDims] = c
	return c
}

func (l *Living) uncount(e lived) {
	if e.count.n--; e.count.n == 0 && l.counts[e.count.livedDims] == e.count {
		delete(l.counts, e.count.livedDims)
	}
}
