package stream

import (
	"bytes"
	"strings"
)

// delimiter finds the first place of a text in a stream that comes in pieces. The first byte of the text must not
// occur in it a second time, so a place that turns out wrong never hides a right one.
type delimiter struct {
	text    string
	matched int // bytes of text that the last piece ended with
}

// cut hands what stands before the delimiter to emit, as far as b settles it, and returns what follows the delimiter
// if it was found. What emit gets is only valid during the call.
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
		// It was no delimiter after all, and none can begin inside it: b is looked at afresh.
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
