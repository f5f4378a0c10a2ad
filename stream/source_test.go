package stream

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	testHeader     = `{"id":"testrouter-streaming01_2025-11-26_13-22-00_p16384_r42","total":20}`
	testHeaderLine = `{"id": "testrouter-streaming01_2025-11-26_13-22-00_p16384_r42", "total": 20}`
	testFooter     = `{"result":"success","state":"completed"}`
	testFooterText = "{\n  \"result\": \"success\",\n  \"state\": \"completed\"\n}"
)

// operation is a running operation with a real log file and any number of readers.
type operation struct {
	tb   testing.TB
	path string

	mu      sync.Mutex
	snap    Snapshot
	readers []*reader
	log     *os.File
}

// reader is one Source of an operation.
type reader struct {
	*operation
	wake chan struct{}
}

func newOperation(tb testing.TB) *operation {
	tb.Helper()
	o := &operation{tb: tb, path: filepath.Join(tb.TempDir(), "ID.log")}
	o.snap.Header = []byte(testHeader)
	o.snap.State = "running"
	tb.Cleanup(func() {
		if o.log != nil {
			o.log.Close()
		}
	})
	return o
}

// endedOperation is an ended operation with this log.
func endedOperation(tb testing.TB, log []byte) *operation {
	tb.Helper()
	o := newOperation(tb)
	o.write(string(log))
	o.end()
	return o
}

func (o *operation) source() *reader {
	r := &reader{o, make(chan struct{}, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers = append(o.readers, r)
	return r
}

func (o *operation) write(text string) {
	o.tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log == nil {
		log, err := os.OpenFile(o.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
		if err != nil {
			o.tb.Fatal(err)
		}
		o.log = log
	}
	if _, err := o.log.WriteString(text); err != nil {
		o.tb.Fatal(err)
	}
	o.wakeLocked()
}

func (o *operation) update(change func(*Snapshot)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.snap)
	o.wakeLocked()
}

func (o *operation) end() {
	o.tb.Helper()
	var size int64
	if o.log != nil {
		info, err := o.log.Stat()
		if err != nil {
			o.tb.Fatal(err)
		}
		size = info.Size()
	}
	o.update(func(s *Snapshot) {
		s.Ended, s.LogBytes, s.Footer, s.State = true, size, []byte(testFooter), "completed"
	})
}

func (o *operation) wakeLocked() {
	for _, r := range o.readers {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *reader) Snapshot() (Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snap, nil
}

func (r *reader) Log() (*os.File, error) { return os.Open(r.path) }

func (r *reader) Wake() <-chan struct{} { return r.wake }

// sink is the connection to a client: flushed bytes have arrived.
type sink struct {
	mu      sync.Mutex
	pending []byte
	arrived []byte
	writes  []string
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, b...)
	s.writes = append(s.writes, string(b))
	return len(b), nil
}

func (s *sink) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = append(s.arrived, s.pending...)
	s.pending = nil
	return nil
}

// take returns the bytes that arrived since the last take.
func (s *sink) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := string(s.arrived)
	s.arrived = nil
	return got
}

// textOf defines the text form, for the header and footer of operations in these tests.
func textOf(log []byte, offset int) []byte {
	text := bytes.Clone(log)
	if len(log) > 0 && log[len(log)-1] != '\n' {
		text = append(text, '\n')
	}
	text = text[min(offset, len(text)):]
	return bytes.Join([][]byte{
		[]byte("<start_json>\n" + testHeaderLine + "\n</start_json>\n<log>\n"),
		escapeByRule(text),
		[]byte("</log>\n<end_json>\n" + testFooterText + "\n</end_json>\n"),
	}, nil)
}

// pass lets time pass inside a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
