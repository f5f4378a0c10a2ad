package yamlfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog/param"
)

// MaxFile is the size of the largest definition file that is read, in bytes.
const MaxFile = 1 << 20

// maxDocuments bounds the documents of one file.
const maxDocuments = 1000

// Document is one YAML document of a file: its exact text and the number of
// lines before it.
type Document struct {
	Text []byte
	line int
}

// ByteOrderMark is what some editors write before a UTF-8 text.
var ByteOrderMark = []byte("\ufeff")

// Split cuts a file at its "---" and "..." lines. YAML gives these
// lines that meaning wherever they start in the first column, also in the middle
// of a quoted text (YAML 1.2.2, section 9.1.2), so no parsing is needed and each
// document keeps its exact text.
func Split(file string, data []byte) ([]Document, *Problem) {
	if len(data) > MaxFile {
		return nil, Position{File: file}.Problem("split it into several files", "the file is larger than %s",
			param.Bytes(MaxFile))
	}
	data = bytes.TrimPrefix(data, ByteOrderMark)
	if p := checkText(file, data); p != nil {
		return nil, p
	}
	var documents []Document
	start, startLine, line := 0, 0, 0
	for at := 0; at < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		marker, rest := documentMarker(string(data[at:end]))
		if marker != "" {
			if rest != "" {
				return nil, Position{file, line + 1, len(marker) + 2}.Problem("start the document on the next line",
					"text after %q", marker)
			}
			documents = append(documents, Document{Text: data[start:at], line: startLine})
			start, startLine = end, line+1
		}
		at = end
	}
	documents = append(documents, Document{Text: data[start:], line: startLine})
	if len(documents) > maxDocuments {
		return nil, Position{file, documents[maxDocuments].line + 1, 1}.Problem("split it into several files",
			"the file has more than %d documents", maxDocuments)
	}
	return documents, nil
}

// documentMarker reports whether a line separates documents, and returns the rest of the line without a
// comment.
func documentMarker(line string) (marker, rest string) {
	for _, m := range []string{"---", "..."} {
		after, ok := strings.CutPrefix(line, m)
		if !ok || after != "" && !strings.ContainsAny(after[:1], " \t\r\n") {
			continue
		}
		after = strings.TrimSpace(after)
		if strings.HasPrefix(after, "#") {
			after = ""
		}
		return m, after
	}
	return "", ""
}

// Blank reports whether a document contains only comments or nothing.
func (d Document) Blank() bool {
	for line := range bytes.Lines(d.Text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// checkText refuses what YAML does not allow in a file (YAML 1.2.2, section 5.1)
// and the single carriage return, which editors and parsers count differently.
func checkText(file string, data []byte) *Problem {
	line, lineStart := 1, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		what := ""
		switch {
		case r == '\n':
			line, lineStart = line+1, i+1
		case r == utf8.RuneError && size == 1:
			what = "a byte that is not UTF-8"
		case r == '\r' && (i+1 == len(data) || data[i+1] != '\n'):
			what = "a carriage return without a line feed"
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f, r >= 0x80 && r < 0xa0 && r != 0x85, r == 0xfeff,
			r == 0xfffe, r == 0xffff:
			what = fmt.Sprintf("the control character %U", r)
		case r == 0x85, r == 0x2028, r == 0x2029:
			what = fmt.Sprintf("the line separator %U", r)
		}
		if what != "" {
			return Position{file, line, utf8.RuneCount(data[lineStart:i]) + 1}.Problem("save it as plain UTF-8 text",
				"the file has %s", what)
		}
		i += size
	}
	return nil
}
