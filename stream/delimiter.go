package stream

import (
	"bytes"
	"strings"
)

// delimiter finds the first occurrence of a text in a stream of chunks. The first byte of the text must occur in it
// only once, so that a failed partial match never hides a match.
type delimiter struct {
	text    string
	matched int // bytes of text that the last chunk ended with
}

// cut passes the bytes before the delimiter to emit, as far as b determines them, and returns the bytes after the
// delimiter if it was found. The argument of emit is only valid during the call.
func (d *delimiter) cut(b []byte, emit func([]byte) error) (rest []byte, found bool, err error) {
	if d.matched > 0 {
		n := commonPrefix(b, d.text[d.matched:])
		switch {
		case d.matched+n == len(d.text):
			d.matched = 0
			return b[n:], true, nil
		case n == len(b):
			d.matched += n
			return nil, false, nil
		}
		// The partial match failed, and no match can begin inside it: b is searched from its start.
		held := d.text[:d.matched]
		d.matched = 0
		if err := emit([]byte(held)); err != nil {
			return nil, false, err
		}
	}
	if i := bytes.Index(b, []byte(d.text)); i >= 0 {
		return b[i+len(d.text):], true, emitSome(b[:i], emit)
	}
	end := b[max(0, len(b)-len(d.text)+1):]
	if i := bytes.LastIndexByte(end, d.text[0]); i >= 0 && strings.HasPrefix(d.text, string(end[i:])) {
		d.matched = len(end) - i
	}
	return nil, false, emitSome(b[:len(b)-d.matched], emit)
}

func emitSome(b []byte, emit func([]byte) error) error {
	if len(b) == 0 {
		return nil
	}
	return emit(b)
}

func commonPrefix(b []byte, text string) int {
	n := min(len(b), len(text))
	for i := range n {
		if b[i] != text[i] {
			return i
		}
	}
	return n
}
