package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	maxHeader = 1 << 20
	// DefaultMaxFooter is the default limit of a footer's length, in bytes.
	DefaultMaxFooter = 64 << 20
)

// ErrIncomplete means that a stream was cut off before its footer. It reveals nothing about the operation.
var ErrIncomplete = errors.New("no footer was received: the stream was cut off")

// Receiver gets the parts of a stream as a [Parser] finds them. A nil function is not called. An error of a function
// ends the parsing, and Write returns it. Slices are only valid during the call.
type Receiver struct {
	Header func(object []byte) error // once, first
	Log    func(text []byte) error   // for each chunk of the log: unescaped, never empty
	Footer func(object []byte) error // once, last
}

// Parser parses the text form of a stream from any chunking of its bytes, with bounded memory. It is an [io.Writer], so
// io.Copy(parser, response.Body) and then Close parse a whole stream. The calls of the receiver and the errors do not
// depend on the chunking, except for how the log is cut into calls.
//
// A log that is not empty ends in a newline here: the text form does not show whether the file does.
//
// A Parser must not be used concurrently.
type Parser struct {
	receiver  Receiver
	maxFooter int

	step     int // index into steps
	literal  int // matched bytes of the current literal
	until    delimiter
	object   []byte // the header or footer so far
	unescape escaper
	clear    []byte // reused for unescaped log
	read     int64  // bytes of the stream
	logBytes int64
	err      error
}

// NewParser returns a Parser that passes the parts of a stream to r and refuses a footer of more than maxFooter bytes,
// or of more than DefaultMaxFooter if maxFooter is not positive.
func NewParser(r Receiver, maxFooter int) *Parser {
	if maxFooter <= 0 {
		maxFooter = DefaultMaxFooter
	}
	return &Parser{receiver: r, maxFooter: maxFooter, unescape: escaper{undo: true}}
}

// step is one section of the stream: a literal, or data up to a delimiter.
type step struct {
	name  string
	fixed string
	until string
	part  func(*Parser, []byte) error // called with each chunk of the data
	end   func(*Parser) error         // called after the last chunk
}

var steps = []step{
	{name: "the start", fixed: openHeader},
	{name: "the header", until: closeHeader, part: (*Parser).headerPart, end: (*Parser).headerEnd},
	{name: "the start of the log", fixed: openLog},
	{name: "the log", until: closeLog, part: (*Parser).logPart, end: (*Parser).logEnd},
	{name: "the end of the log", fixed: openFooter},
	{name: "the footer", until: closeFooter, part: (*Parser).footerPart, end: (*Parser).footerEnd},
	{name: "the end", fixed: "\n"},
}

// footerStep is the number of steps after which the footer is complete.
const footerStep = 6

// Write parses the next bytes of the stream. After an error it always returns that error.
func (p *Parser) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	given := len(b)
	for len(b) > 0 {
		rest, err := p.next(b)
		p.read += int64(len(b) - len(rest))
		if err != nil {
			p.err = err
			return given - len(rest), err
		}
		b = rest
	}
	return given, nil
}

func (p *Parser) next(b []byte) (rest []byte, err error) {
	if p.step == len(steps) {
		return b, fmt.Errorf("parse the stream: byte %d: there is something after its end", p.read)
	}
	s := steps[p.step]
	if s.until == "" {
		want := s.fixed[p.literal:]
		n := commonPrefix(b, want)
		if n < len(want) && n < len(b) {
			return b[n:], fmt.Errorf("parse the stream: byte %d: found %q in %s, want %q; is this the stream of an operation?",
				p.read+int64(n), b[n], s.name, s.fixed)
		}
		if p.literal += n; n == len(want) {
			p.literal = 0
			p.step++
		}
		return b[n:], nil
	}
	p.until.text = s.until
	rest, found, err := p.until.cut(b, func(part []byte) error { return s.part(p, part) })
	if err != nil || !found {
		return rest, err
	}
	p.step++
	return rest, s.end(p)
}

// Close reports whether the stream was complete: nil, the error of an earlier Write, or an error that wraps
// [ErrIncomplete].
func (p *Parser) Close() error {
	switch {
	case p.err != nil:
		return p.err
	case p.step < footerStep:
		return fmt.Errorf("parse the stream: it ended in %s, after %d bytes of log: %w", steps[p.step].name,
			p.logBytes, ErrIncomplete)
	}
	return nil
}

// LogBytes returns the number of log bytes passed to the receiver. A stream that began at offset N and was cut off
// continues at offset N + LogBytes.
func (p *Parser) LogBytes() int64 { return p.logBytes }

func (p *Parser) headerPart(b []byte) error { return p.collect("header", b, maxHeader) }

func (p *Parser) footerPart(b []byte) error { return p.collect("footer", b, p.maxFooter) }

func (p *Parser) collect(name string, b []byte, limit int) error {
	if len(p.object)+len(b) > limit {
		return fmt.Errorf("parse the stream: the %s is longer than the %d bytes that are allowed", name, limit)
	}
	p.object = append(p.object, b...)
	return nil
}

func (p *Parser) headerEnd() error { return p.deliver("header", p.receiver.Header) }

func (p *Parser) footerEnd() error { return p.deliver("footer", p.receiver.Footer) }

func (p *Parser) deliver(name string, to func([]byte) error) error {
	object := p.object
	p.object = nil
	if !json.Valid(object) {
		return fmt.Errorf("parse the stream: the %s is not JSON", name)
	}
	if to == nil {
		return nil
	}
	return to(object)
}

func (p *Parser) logPart(b []byte) error {
	if p.unescape.passes(b) {
		return p.deliverLog(b)
	}
	p.clear = p.unescape.append(p.clear[:0], b)
	return p.deliverLog(p.clear)
}

func (p *Parser) logEnd() error {
	p.clear = p.unescape.flush(p.clear[:0])
	err := p.deliverLog(p.clear)
	p.clear = nil
	return err
}

func (p *Parser) deliverLog(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	p.logBytes += int64(len(b))
	if p.receiver.Log == nil {
		return nil
	}
	return p.receiver.Log(b)
}

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
