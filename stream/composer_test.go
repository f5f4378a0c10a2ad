package stream

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// A composer reproduces a stream from its parts, also from several connections that each continue at the byte of the
// log where the previous one was cut off.
func TestComposerOverConnections(t *testing.T) {
	t.Parallel()
	header, footer := []byte(`{"id": "x", "total": null}`), []byte("{\n  \"result\": \"success\"\n}")
	rapid.Check(t, func(t *rapid.T) {
		log := bytes.Join(rapid.SliceOf(rapid.SampledFrom([][]byte{
			[]byte("<"), []byte("\\"), []byte("/log>"), []byte("</log>"), []byte("end_json "), []byte("line\n"), []byte("é"),
		})).Draw(t, "log"), nil)
		log = append(log, '\n')
		whole := func(offset int64) []byte {
			return append(opening(header), closing(escape(log[offset:]), footer)...)
		}
		var out bytes.Buffer
		composer := NewComposer(&out)
		var offset int64
		for range rapid.IntRange(0, 4).Draw(t, "cuts") {
			sent := whole(offset)
			tags := len(closeLog) + len(openFooter) + len(footer) + len(closeFooter) + 1
			sent = sent[:rapid.IntRange(0, len(sent)-tags).Draw(t, "cut")]
			offset += receive(t, composer, sent, rapid.IntRange(1, 9).Draw(t, "chunk"))
		}
		receive(t, composer, whole(offset), 5)
		if want := whole(0); !bytes.Equal(out.Bytes(), want) {
			t.Errorf("composed %q, want %q", out.Bytes(), want)
		}
	})
}

// receive parses the bytes of one connection and returns how many log bytes they contained.
func receive(t *rapid.T, composer *Composer, sent []byte, chunk int) int64 {
	parser := NewParser(Receiver{Header: composer.Header, Log: composer.Log, Footer: composer.Footer}, 0)
	for len(sent) > 0 {
		n := min(chunk, len(sent))
		if _, err := parser.Write(sent[:n]); err != nil {
			t.Fatal(err)
		}
		sent = sent[n:]
	}
	return parser.LogBytes()
}
