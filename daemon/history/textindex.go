package history

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math/bits"
)

// Rows are indexed by tag and by text, so that a filter reads only rows that can match.
//
//	tags    hash of the tag, ID → number of the row
//	grams   segment, three bytes → which rows of the segment have these bytes in their text, in lower case
//
// A tag is indexed with its row. Texts are indexed by segment, once every number in the segment is
// known: a single row would change hundreds of pages. Segments without an entry of their own are
// read row by row, and so are segments in which a text has changed since.

// segmentSize is how many numbers a segment has.
const segmentSize = 1024

const gramSize = 3

// posting is the set of rows of a segment that contain a text.
type posting [segmentSize / 64]uint64

func (p *posting) set(row uint64)      { p[row/64] |= 1 << (row % 64) }
func (p *posting) has(row uint64) bool { return p[row/64]&(1<<(row%64)) != 0 }

func (p *posting) count() (n int) {
	for _, word := range p {
		n += bits.OnesCount64(word)
	}
	return n
}

// pack encodes a list of rows when that is shorter than one bit per row: the length distinguishes
// the two.
func (p *posting) pack() []byte {
	var out []byte
	if p.count()*2 < segmentSize/8 {
		for row := range uint64(segmentSize) {
			if p.has(row) {
				out = binary.BigEndian.AppendUint16(out, uint16(row))
			}
		}
		return out
	}
	out, _ = binary.Append(out, binary.BigEndian, p[:]) // numbers always encode
	return out
}

func parsePosting(data []byte) (p posting, ok bool) {
	if len(data) == segmentSize/8 {
		_, err := binary.Decode(data, binary.BigEndian, p[:])
		return p, err == nil
	}
	for ; len(data) >= 2; data = data[2:] {
		row := uint64(binary.BigEndian.Uint16(data))
		if row >= segmentSize {
			return p, false
		}
		p.set(row)
	}
	return p, len(data) == 0
}

// texts returns the texts that a text filter searches.
func (r *parsedRow) texts() [4][]byte { return [4][]byte{r.id, r.params, r.code, r.message} }

// seal indexes the texts of the first segment at or after the number from that has rows and no
// entry, if all of its numbers are at most last. next is where to continue; it stays at an
// incomplete segment.
func (x index) seal(from, last uint64) (next uint64, err error) {
	cursor := x.rows.Cursor()
	key, value := cursor.Seek(numberKey(from))
	for key != nil && x.grams.Get(numberKey(numberOf(key)/segmentSize)) != nil {
		key, value = cursor.Seek(numberKey((numberOf(key)/segmentSize + 1) * segmentSize))
	}
	if key == nil {
		return last + 1, nil
	}
	segment := numberOf(key) / segmentSize
	end := (segment + 1) * segmentSize
	if end > last+1 {
		return segment * segmentSize, nil
	}
	found := make(map[[gramSize]byte]*posting)
	for ; key != nil && numberOf(key) < end; key, value = cursor.Next() {
		r, err := Packed(value).parse()
		if err != nil {
			return 0, err
		}
		for _, text := range r.texts() {
			text = bytes.ToLower(text)
			for ; len(text) >= gramSize; text = text[1:] {
				p := found[[gramSize]byte(text)]
				if p == nil {
					p = new(posting)
					found[[gramSize]byte(text)] = p
				}
				p.set(numberOf(key) % segmentSize)
			}
		}
	}
	prefix := numberKey(segment)
	for gram, p := range found {
		if err := x.grams.Put(append(bytes.Clone(prefix), gram[:]...), p.pack()); err != nil {
			return 0, err
		}
	}
	return end, x.grams.Put(prefix, []byte{1})
}

// unseal makes queries read a segment row by row again, because the text of a row has changed.
func (x index) unseal(number uint64) error { return x.grams.Delete(numberKey(number / segmentSize)) }

// dropSegment forgets the texts of a segment when its last row is gone.
func (x index) dropSegment(number uint64) error {
	segment := number / segmentSize
	if key, _ := x.rows.Cursor().Seek(numberKey(segment * segmentSize)); key != nil &&
		numberOf(key)/segmentSize == segment {
		return nil
	}
	prefix := numberKey(segment)
	cursor := x.grams.Cursor()
	for key, _ := cursor.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, _ = cursor.Seek(prefix) {
		if err := cursor.Delete(); err != nil {
			return err
		}
	}
	return nil
}

func tagKey(tag string, id []byte) []byte {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(tag)) // a hash does not fail
	return append(hash.Sum(nil), id...)
}

// candidates returns the numbers of all rows that can match, in no order, if the filter has a tag
// or a text that is indexed and there are at most most of them.
func (x index) candidates(f *filter, most int) (numbers [][]byte, ok bool) {
	if f.Tag != "" {
		if numbers, ok = x.candidatesByTag(f.Tag, most); ok {
			return numbers, true
		}
	}
	if len(f.text) >= gramSize {
		return x.candidatesByText(f.text, most)
	}
	return nil, false
}

func (x index) candidatesByTag(tag string, most int) (numbers [][]byte, ok bool) {
	for _, number := range withPrefix(x.tags, tagKey(tag, nil)) {
		if len(numbers) == most {
			return nil, false
		}
		numbers = append(numbers, number)
	}
	return numbers, true
}

func (x index) candidatesByText(text []byte, most int) (numbers [][]byte, ok bool) {
	cursor := x.rows.Cursor()
	for key, _ := cursor.First(); key != nil; {
		segment := numberOf(key) / segmentSize
		end := (segment + 1) * segmentSize
		if x.grams.Get(numberKey(segment)) == nil {
			for ; key != nil && numberOf(key) < end; key, _ = cursor.Next() {
				numbers = append(numbers, key)
			}
		} else {
			p, err := x.rowsContaining(segment, text)
			if err {
				return nil, false
			}
			for row := range uint64(segmentSize) {
				if p.has(row) {
					numbers = append(numbers, numberKey(segment*segmentSize+row))
				}
			}
			key, _ = cursor.Seek(numberKey(end))
		}
		if len(numbers) > most {
			return nil, false
		}
	}
	return numbers, true
}

// rowsContaining returns the rows of a segment that contain every three-byte sequence of a text.
func (x index) rowsContaining(segment uint64, text []byte) (all posting, damaged bool) {
	for i := range all {
		all[i] = ^uint64(0)
	}
	for ; len(text) >= gramSize; text = text[1:] {
		p, ok := parsePosting(x.grams.Get(append(numberKey(segment), text[:gramSize]...)))
		if !ok {
			return all, true
		}
		for i := range all {
			all[i] &= p[i]
		}
		if all == (posting{}) {
			break
		}
	}
	return all, false
}
