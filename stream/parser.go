package stream

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	maxHeader = 1 << 20
	// DefaultMaxFooter is how long a footer may be in bytes unless a Parser is told otherwise.
	DefaultMaxFooter = 64 << 20
)

// ErrIncomplete says that a stream was cut off before its footer. It says nothing about the operation.
var ErrIncomplete = errors.New("no footer was received: the stream was cut off")

// Receiver gets the parts of a stream as a [Parser] finds them. A function that is nil is not called. An error of one
// of them ends the parsing and is returned by Write. Slices are only valid during the call.
type Receiver struct {
	Header func(object []byte) error // once, before all else
	Log    func(text []byte) error   // as often as bytes of the log arrive, in any sizes, never empty, unescaped
	Footer func(object []byte) error // once, as the last
}

// Parser reads the text form of a stream from any chunking of its bytes, with bounded memory. It is an [io.Writer], so
// io.Copy(parser, response.Body) and then Close read a whole stream. What the receiver gets is the same for every
// chunking, and so are the errors; only how the log is cut into calls differs.
//
// The log that it hands on ends in a newline when there is any: the text form cannot say whether the file does.
//
// A Parser is for one goroutine.
type Parser struct {
	receiver  Receiver
	maxFooter int

	step     int // index into steps
	literal  int // bytes of the present literal that have been seen
	until    delimiter
	object   []byte // the header or footer so far
	unescape Unescaper
	clear    []byte // reused for unescaped log
	read     int64  // bytes of the stream
	logBytes int64
	err      error
}

// NewParser returns a Parser that gives what it finds to r and refuses a footer of more than maxFooter bytes, or of
// more than DefaultMaxFooter when that is not positive.
func NewParser(r Receiver, maxFooter int) *Parser {
	if maxFooter <= 0 {
		maxFooter = DefaultMaxFooter
	}
	return &Parser{receiver: r, maxFooter: maxFooter}
}

// step is one stretch of the stream: a literal, or something up to a delimiter.
type step struct {
	name  string
	fixed string
	until string
	part  func(*Parser, []byte) error // a piece of it
	end   func(*Parser) error         // all of it is there
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

// footerStep is the number of steps after which the footer is there.
const footerStep = 6

// Write parses the next bytes of the stream. After an error it returns the same error again.
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

// Done says that the footer was received.
func (p *Parser) Done() bool {
	return p.err == nil && p.step >= footerStep
}

// Close says whether the stream was whole: nil, the error of an earlier Write, or an error that is [ErrIncomplete].
func (p *Parser) Close() error {
	switch {
	case p.err != nil:
		return p.err
	case p.step < footerStep:
		return fmt.Errorf("parse the stream: it ended in %s, after %d bytes of log: %w", steps[p.step].name, p.logBytes, ErrIncomplete)
	}
	return nil
}

// LogBytes returns the number of bytes of the log that were handed on. A stream that began at offset N and was cut off
// goes on at offset N + LogBytes.
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

func (p *Parser) headerEnd() error { return p.hand("header", p.receiver.Header) }

func (p *Parser) footerEnd() error { return p.hand("footer", p.receiver.Footer) }

func (p *Parser) hand(name string, to func([]byte) error) error {
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
	if p.unescape.filter.passes(b) {
		return p.handLog(b)
	}
	p.clear = p.unescape.Append(p.clear[:0], b)
	return p.handLog(p.clear)
}

func (p *Parser) logEnd() error {
	p.clear = p.unescape.Flush(p.clear[:0])
	err := p.handLog(p.clear)
	p.clear = nil
	return err
}

func (p *Parser) handLog(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	p.logBytes += int64(len(b))
	if p.receiver.Log == nil {
		return nil
	}
	return p.receiver.Log(b)
}
