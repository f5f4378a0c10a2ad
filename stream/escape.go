package stream

import "bytes"

// maxRun is the number of backslashes after which a candidate is escaped whatever follows, so that what has to be
// held back is bounded. Unescaping mirrors it with one more.
const maxRun = 64

// maxHeld is the longest candidate that is not decided yet: '<', the run, '/' and the longest name.
const maxHeld = 1 + maxRun + 1 + len("start_json")

// Escaper makes log text safe to stand in the frame of a stream. Where the text has
//
//	"<", any backslashes, an optional "/", then log, start_json or end_json in any letter case,
//	then white space, "/" or ">"
//
// it inserts one backslash after the "<"; it also does so after a "<" that 64 backslashes or more follow. All else
// stays as it is. The result is a function of the whole text alone: a candidate that is split over two calls of
// Append is held back until it is decided. White space is the ASCII kind: space, \t, \n, \v, \f, \r.
//
// The zero value is ready. An Escaper is for one goroutine.
type Escaper struct{ filter filter }

// Append appends the escaped form of p to dst and returns it. The end of the text may be held back.
func (e *Escaper) Append(dst, p []byte) []byte { return e.filter.append(dst, p, maxRun, false) }

// Flush appends what is held back, unchanged, because the text ends here: it did not become a tag.
func (e *Escaper) Flush(dst []byte) []byte { return e.filter.flush(dst) }

// Escape returns the escaped form of a whole text. The result shares no memory with it.
func Escape(text []byte) []byte {
	var e Escaper
	return e.Flush(e.Append(nil, text))
}

// Unescaper undoes what [Escaper] did: it removes one backslash in the same places. Text that was never escaped passes
// as it is, apart from such places.
//
// The zero value is ready. An Unescaper is for one goroutine.
type Unescaper struct{ filter filter }

// Append appends the original form of p to dst and returns it. The end of the text may be held back.
func (u *Unescaper) Append(dst, p []byte) []byte { return u.filter.append(dst, p, maxRun+1, true) }

// Flush appends what is held back, unchanged, because the text ends here.
func (u *Unescaper) Flush(dst []byte) []byte { return u.filter.flush(dst) }

// Unescape returns the original of a whole escaped text: Unescape(Escape(text)) is text, for all texts. The result
// shares no memory with its argument.
func Unescape(text []byte) []byte {
	var u Unescaper
	return u.Flush(u.Append(nil, text))
}

// filter is what the two directions share.
type filter struct {
	held [maxHeld + 1]byte // one more than can be held: with it every candidate is decided
	n    int
}

// passes says that append would return p as it is.
func (f *filter) passes(p []byte) bool {
	return f.n == 0 && bytes.IndexByte(p, '<') < 0
}

func (f *filter) append(dst, p []byte, limit int, undo bool) []byte {
	if f.n > 0 {
		fresh := copy(f.held[f.n:], p)
		run, tag, decided := judge(f.held[:f.n+fresh], limit)
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
		run, tag, decided := judge(p[i:], limit)
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

// judge reads the candidate at the start of b, which begins with '<'. run is the number of backslashes seen; tag says
// that a backslash has to be inserted (or removed, if there is one); decided is false while the answer depends on
// bytes that b does not have.
func judge(b []byte, limit int) (run int, tag, decided bool) {
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

// tagName returns the one tag of the frame that begins with the letter c.
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
