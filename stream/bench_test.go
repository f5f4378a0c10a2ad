package stream

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkText reads an ended operation of 64 MiB as one client does.
func BenchmarkText(b *testing.B) {
	const size = 64 << 20
	for name, line := range map[string]string{
		"plain":      "[ 1 / 20 ] Processing file 'document_001.pdf'...\n",
		"markup":     "File \"main.py\", line 1, in <module> at <b>here</b>\n",
		"hostile":    "</log><log>\n",
		"long lines": strings.Repeat("x", 1<<20) + "\n",
	} {
		b.Run(name, func(b *testing.B) {
			o := endedOperation(b, bytes.Repeat([]byte(line), size/len(line)))
			src := o.source()
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := Text(b.Context(), io.Discard, nil, src, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEvents(b *testing.B) {
	const size = 64 << 20
	line := "[ 1 / 20 ] Processing file 'document_001.pdf'...\n"
	o := endedOperation(b, bytes.Repeat([]byte(line), size/len(line)))
	src := o.source()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if err := Events(b.Context(), io.Discard, nil, src, 0, Heartbeat); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTextLive wakes a follower for each line, which must be sent before the next line is written.
func BenchmarkTextLive(b *testing.B) {
	o := newOperation(b)
	src := o.source()
	arrived := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- Text(b.Context(), io.Discard, func() error { arrived <- struct{}{}; return nil }, src, 0)
	}()
	<-arrived
	b.ReportAllocs()
	for b.Loop() {
		o.write("[ 1 / 20 ] Processing file 'document_001.pdf'...\n")
		<-arrived
	}
	o.end()
	<-arrived
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkEscape(b *testing.B) {
	for name, line := range map[string]string{
		"plain":   "[ 1 / 20 ] Processing file 'document_001.pdf'...\n",
		"markup":  "File \"main.py\", line 1, in <module> at <b>here</b>\n",
		"hostile": "</log><log>\n",
	} {
		b.Run(name, func(b *testing.B) {
			text := bytes.Repeat([]byte(line), pieceSize/len(line))
			var e escaper
			var out []byte
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				out = e.append(out[:0], text)
			}
		})
	}
}

func BenchmarkParser(b *testing.B) {
	var p *Parser
	piece := bytes.Repeat([]byte("[ 1 / 20 ] Processing file 'document_001.pdf'...\n"), 600)
	p = NewParser(Receiver{}, 0)
	if _, err := io.WriteString(p, testStart); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(piece)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriterLine(b *testing.B) {
	for name, shared := range map[string]bool{"alone": false, "shared": true} {
		b.Run(name, func(b *testing.B) {
			w := newWriter(b, filepath.Join(b.TempDir(), "ID.log"), shared)
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Line("[ 1 / 20 ] Processing file 'document_001.pdf'..."); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
