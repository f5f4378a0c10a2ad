package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// oneLine returns a JSON value on one line: with a space after each colon and comma, members and numbers unchanged, and
// "<" as \u003c.
func oneLine(value []byte) ([]byte, error) {
	return layOut(value, false)
}

// pretty returns a JSON object with one member per line, indented by two spaces. An array whose first element is an
// object has one element per line, indented by four. Everything else is on one line as in oneLine.
func pretty(object []byte) ([]byte, error) {
	return layOut(object, true)
}

func layOut(value []byte, members bool) ([]byte, error) {
	var compact bytes.Buffer
	compact.Grow(len(value))
	if err := json.Compact(&compact, value); err != nil {
		return nil, err
	}
	b := compact.Bytes()
	if members && b[0] != '{' {
		return nil, fmt.Errorf("it begins with %q, want a JSON object", b[0])
	}
	l := layout{in: b, out: make([]byte, 0, len(b)+len(b)/4+64), members: members && len(b) > 2}
	for l.at < len(b) {
		l.token()
	}
	return l.out, nil
}

// layout formats compact JSON that is known to be valid.
type layout struct {
	in, out []byte
	at      int
	depth   int
	members bool // the outermost object has one member per line
	rows    bool // the array at depth 2 has one element per line
}

func (l *layout) token() {
	c := l.in[l.at]
	switch c {
	case '"':
		l.text()
		return
	case '{', '[':
		l.depth++
		l.out = append(l.out, c)
		if l.members && l.depth == 2 {
			l.rows = c == '[' && l.in[l.at+1] == '{'
		}
		l.newline()
	case '}', ']':
		wide := l.wide()
		l.depth--
		if wide {
			l.out = append(l.out, '\n')
			l.indent(l.depth)
		}
		l.out = append(l.out, c)
	case ',':
		l.out = append(l.out, c)
		if !l.newline() {
			l.out = append(l.out, ' ')
		}
	case ':':
		l.out = append(l.out, ':', ' ')
	default:
		l.out = append(l.out, c)
	}
	l.at++
}

// wide reports whether the elements at the current depth have lines of their own.
func (l *layout) wide() bool {
	return l.members && (l.depth == 1 || l.depth == 2 && l.rows)
}

func (l *layout) newline() bool {
	if !l.wide() {
		return false
	}
	l.out = append(l.out, '\n')
	l.indent(l.depth)
	return true
}

func (l *layout) indent(depth int) {
	for range depth {
		l.out = append(l.out, ' ', ' ')
	}
}

// text copies one string. A literal "<" never follows a backslash: that is no JSON escape.
func (l *layout) text() {
	l.out = append(l.out, '"')
	for l.at++; ; l.at++ {
		switch c := l.in[l.at]; c {
		case '\\':
			l.at++
			l.out = append(l.out, c, l.in[l.at])
		case '<':
			l.out = append(l.out, `\u003c`...)
		case '"':
			l.out = append(l.out, c)
			l.at++
			return
		default:
			l.out = append(l.out, c)
		}
	}
}
