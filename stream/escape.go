package stream

import "bytes"

// maxRun is the number of backslashes after which a candidate is escaped whatever follows, which bounds the bytes that
// must be held back. Unescaping uses one more.
const maxRun = 64

// maxHeld is the length of the longest undecided candidate: '<', the run, '/' and the longest name.
const maxHeld = 1 + maxRun + 1 + len("start_json")

// Escaper escapes log text for the frame of a stream. Where the text has
//
//	"<", any backslashes, an optional "/", then log, start_json or end_json in any letter case,
//	then white space, "/" or ">"
//
// it inserts one backslash after the "<"; it also does so after a "<" that 64 backslashes or more follow. Everything
// else is unchanged. The result depends only on the whole text: a candidate that is split over two calls of Append is
// held back until it is decided. White space is the ASCII kind: space, \t, \n, \v, \f, \r.
//
// The zero value is ready to use. An Escaper must not be used concurrently.
type Escaper struct{ filter filter }

// Append appends the escaped form of p to dst and returns it. The end of the text may be held back.
func (e *Escaper) Append(dst, p []byte) []byte { return e.filter.append(dst, p, maxRun, false) }

// Flush appends the held back bytes unchanged: the text ends here, so they did not become a tag.
func (e *Escaper) Flush(dst []byte) []byte { return e.filter.flush(dst) }

// Unescaper undoes the changes of an [Escaper]: it removes one backslash in the same places. Text that was never
// escaped is otherwise unchanged.
//
// The zero value is ready to use. An Unescaper must not be used concurrently.
type Unescaper struct{ filter filter }

// Append appends the original form of p to dst and returns it. The end of the text may be held back.
func (u *Unescaper) Append(dst, p []byte) []byte { return u.filter.append(dst, p, maxRun+1, true) }

// Flush appends the held back bytes unchanged: the text ends here.
func (u *Unescaper) Flush(dst []byte) []byte { return u.filter.flush(dst) }

// filter implements both directions.
type filter struct {
	held [maxHeld + 1]byte // with one more byte than maxHeld every candidate is decided
	n    int
}

// passes reports whether append would return p unchanged.
func (f *filter) passes(p []byte) bool {
	return f.n == 0 && bytes.IndexByte(p, '<') < 0
}

func (f *filter) append(dst, p []byte, limit int, undo bool) []byte {
	if f.n > 0 {
		fresh := copy(f.held[f.n:], p)
		run, tag, decided := scanTag(f.held[:f.n+fresh], limit)
		if !decided {
			f.n += fresh
			return dst
		}
		held := f.held[1:f.n]
		f.n = 0
		dst = append(dst, '<')
		switch {
		case tag && !undo:
			dst = append(dst, '\\')
		case tag && run > 0 && len(held) > 0:
			held = held[1:]
		case tag && run > 0:
			p = p[1:]
		}
		dst = append(dst, held...)
	}
	for {
		i := bytes.IndexByte(p, '<')
		if i < 0 {
			return append(dst, p...)
		}
		run, tag, decided := scanTag(p[i:], limit)
		if !decided {
			f.n = copy(f.held[:], p[i:])
			return append(dst, p[:i]...)
		}
		dst = append(dst, p[:i+1]...)
		p = p[i+1:]
		switch {
		case tag && !undo:
			dst = append(dst, '\\')
		case tag && run > 0:
			p = p[1:]
		}
	}
}

func (f *filter) flush(dst []byte) []byte {
	dst = append(dst, f.held[:f.n]...)
	f.n = 0
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
