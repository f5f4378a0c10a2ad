package stream

import (
	"bytes"
	"slices"
)

// maxRun is the number of backslashes after which a candidate is escaped whatever follows, which bounds the bytes that
// must be held back. Unescaping uses one more.
const maxRun = 64

// maxHeld is the length of the longest undecided candidate: '<', the run, '/' and the longest name.
const maxHeld = 1 + maxRun + 1 + len("start_json")

// escaper escapes log text for the frame of a stream. Where the text has
//
//	"<", any backslashes, an optional "/", then log, start_json or end_json in any letter case,
//	then white space, "/" or ">"
//
// it inserts one backslash after the "<"; it also does so after a "<" that 64 backslashes or more follow. Everything
// else is unchanged. The result depends only on the whole text: a candidate that is split over two calls of append is
// held back until it is decided. White space is the ASCII kind: space, \t, \n, \v, \f, \r.
//
// With undo it removes one backslash in the same places: text that was never escaped is otherwise unchanged.
type escaper struct {
	undo bool
	held [maxHeld + 1]byte // with one more byte than maxHeld every candidate is decided
	n    int
}

// passes reports whether append would return p unchanged.
func (e *escaper) passes(p []byte) bool {
	return e.n == 0 && bytes.IndexByte(p, '<') < 0
}

// append appends the other form of p to dst and returns it. The end of the text may be held back.
func (e *escaper) append(dst, p []byte) []byte {
	if e.n > 0 {
		p = slices.Concat(e.held[:e.n], p)
		e.n = 0
	}
	limit := maxRun
	if e.undo {
		limit++
	}
	for {
		i := bytes.IndexByte(p, '<')
		if i < 0 {
			return append(dst, p...)
		}
		run, tag, decided := scanTag(p[i:], limit)
		if !decided {
			e.n = copy(e.held[:], p[i:])
			return append(dst, p[:i]...)
		}
		dst = append(dst, p[:i+1]...)
		p = p[i+1:]
		switch {
		case tag && !e.undo:
			dst = append(dst, '\\')
		case tag && run > 0:
			p = p[1:]
		}
	}
}

// flush appends the held back bytes unchanged: the text ends here, so they did not become a tag.
func (e *escaper) flush(dst []byte) []byte {
	dst = append(dst, e.held[:e.n]...)
	e.n = 0
	return dst
}

// scanTag examines the candidate at the start of b, which begins with '<'. run is the number of backslashes; tag means
// that a backslash has to be inserted (or removed, if there is one); decided is false while the result depends on bytes
// after b.
func scanTag(b []byte, limit int) (run int, tag, decided bool) {
	i := 1
	for i < len(b) && b[i] == '\\' {
		if i == limit {
			return i, true, true
		}
		i++
	}
	run = i - 1
	if i < len(b) && b[i] == '/' {
		i++
	}
	if i == len(b) {
		return run, false, false
	}
	name := tagName(b[i])
	if name == "" {
		return run, false, true
	}
	for j := range len(name) {
		if i+j == len(b) {
			return run, false, false
		}
		if c := b[i+j]; c != name[j] && (name[j] == '_' || c|0x20 != name[j]) {
			return run, false, true
		}
	}
	i += len(name)
	if i == len(b) {
		return run, false, false
	}
	switch b[i] {
	case ' ', '\t', '\n', '\v', '\f', '\r', '/', '>':
		return run, true, true
	}
	return run, false, true
}

// tagName returns the tag of the frame that begins with the letter c.
func tagName(c byte) string {
	switch c | 0x20 {
	case 'l':
		return "log"
	case 's':
		return "start_json"
	case 'e':
		return "end_json"
	}
	return ""
}
