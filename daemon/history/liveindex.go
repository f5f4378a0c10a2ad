package history

import (
	"bytes"
	"iter"
	"slices"
	"sync"
)

// LiveIndex holds the rows of live operations in the order of creation, and counts them, so that a
// page of a list costs as much as it shows. Its owner puts every change; the zero value is empty.
// It is safe for concurrent use.
//
//	Put ──▶ blocks, counts ──End──▶ ending ──Remove──▶ (the index has it)
//
// An operation that ends is in the history index slightly before it is removed here. From End on,
// it is looked up there individually, so that it appears once in each list and counts once.
type LiveIndex struct {
	mu     sync.Mutex
	blocks [][]liveRow // the oldest first; none is empty or longer than blockSize
	counts map[liveDimensions]*liveCount
	ending map[liveKey]liveRow
	// snapshots are the snapshots in use; End adds to them the operations that begin to end.
	snapshots map[*liveSnapshot]bool
}

// blockSize bounds how many rows an insertion moves.
const blockSize = 512

// liveKey is the time of creation and the ID, the order of lists.
type liveKey [cursorSize]byte

// liveRow is one row.
type liveRow struct {
	key     liveKey
	updated int64
	row     Packed
	count   *liveCount
}

// liveDimensions is a comparable form of dimensions; liveCount is the number of rows of each.
type liveDimensions struct{ day, status, job, group, lane, result string }

type liveCount struct {
	liveDimensions
	n int
}

func (c *liveCount) dimensions() dimensions {
	return dimensions{[]byte(c.day), []byte(c.status), []byte(c.job), []byte(c.group), []byte(c.lane), []byte(c.result)}
}

// Put adds or replaces the row of an operation. The time of creation must not change.
func (l *LiveIndex) Put(row Packed) {
	r, err := row.parse()
	if err != nil {
		return // Row.Pack makes no such row
	}
	e := liveRow{key: r.liveKey(), updated: r.updated, row: row}
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
		l.blocks = [][]liveRow{{e}}
		return
	}
	l.blocks[block] = slices.Insert(l.blocks[block], at, e)
	if full := l.blocks[block]; len(full) > blockSize {
		// Nearly all rows come in order: keep the old block nearly full, and leave space in the new
		// one.
		cut := blockSize / 2
		if block == len(l.blocks)-1 && at == len(full)-1 {
			cut = blockSize
		}
		rest := append(make([]liveRow, 0, blockSize+1), full[cut:]...)
		clear(full[cut:])
		l.blocks[block] = full[:cut]
		l.blocks = slices.Insert(l.blocks, block+1, rest)
	}
}

// End marks an operation as ending: it is about to enter the history index. row is its present row.
func (l *LiveIndex) End(row Packed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, has := l.take(row)
	if !has {
		return
	}
	if l.ending == nil {
		l.ending = make(map[liveKey]liveRow)
	}
	l.ending[e.key] = e
	for g := range l.snapshots {
		g.ending = append(g.ending, e)
	}
}

// Remove forgets an operation. row is its present row.
func (l *LiveIndex) Remove(row Packed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key, ok := keyOfRow(row); ok {
		delete(l.ending, key)
	}
	l.take(row)
}

// Len returns how many operations are live.
func (l *LiveIndex) Len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.counts {
		n += c.n
	}
	return n + len(l.ending)
}

// take removes a row from the blocks; false when it is not there.
func (l *LiveIndex) take(row Packed) (e liveRow, has bool) {
	key, _ := keyOfRow(row) // no row has the key of a damaged one
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

// find returns the position of a key, or where it belongs.
func (l *LiveIndex) find(key []byte) (block, at int, has bool) {
	block, has = slices.BinarySearchFunc(l.blocks, key,
		func(b []liveRow, key []byte) int { return b[0].compare(key) })
	if !has && block > 0 {
		block--
	}
	if block == len(l.blocks) {
		return block, 0, false
	}
	at, has = slices.BinarySearchFunc(l.blocks[block], key, liveRow.compare)
	return block, at, has
}

func (e liveRow) compare(key []byte) int { return bytes.Compare(e.key[:], key) }

// backward ranges over the rows behind a cursor, the newest first; nil means all rows.
func (l *LiveIndex) backward(after *Cursor) iter.Seq[*liveRow] {
	return func(yield func(*liveRow) bool) {
		for _, block := range slices.Backward(l.blocks) {
			at := len(block)
			if after != nil {
				at, _ = slices.BinarySearchFunc(block, after.key, liveRow.compare)
			}
			for at--; at >= 0; at-- {
				if !yield(&block[at]) {
					return
				}
			}
		}
	}
}

func (l *LiveIndex) counter(r *parsedRow) *liveCount {
	day := dayOf(r.id)
	if c := l.counts[liveDimensions{ // without an allocation, because the key is only looked up
		string(day), string(r.status), string(r.job), string(r.group), string(r.lane), string(r.result),
	}]; c != nil {
		return c
	}
	of := liveDimensions{
		string(day), string(r.status), string(r.job), string(r.group), string(r.lane), string(r.result),
	}
	if l.counts == nil {
		l.counts = make(map[liveDimensions]*liveCount)
	}
	l.counts[of] = &liveCount{liveDimensions: of}
	return l.counts[of]
}

func (l *LiveIndex) uncount(e liveRow) {
	if e.count.n--; e.count.n == 0 && l.counts[e.count.liveDimensions] == e.count {
		delete(l.counts, e.count.liveDimensions)
	}
}
