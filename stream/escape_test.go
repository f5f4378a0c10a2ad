package stream

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The rule as expressions, to which the filter is compared.
const (
	tagPattern = `\\*/?(?:[lL][oO][gG]|[sS][tT][aA][rR][tT]_[jJ][sS][oO][nN]|[eE][nN][dD]_[jJ][sS][oO][nN])[ \t\n\v\f\r/>]`
)

var (
	escapeRule   = regexp.MustCompile(`<(\\{64}|` + tagPattern + `)`)
	unescapeRule = regexp.MustCompile(`<\\(\\{64}|` + tagPattern + `)`)
)

func escapeByRule(text []byte) []byte   { return escapeRule.ReplaceAll(text, []byte(`<\$1`)) }
func unescapeByRule(text []byte) []byte { return unescapeRule.ReplaceAll(text, []byte(`<$1`)) }

// escape returns the escaped form of a whole text.
func escape(text []byte) []byte {
	var e escaper
	return e.flush(e.append(nil, text))
}

// unescape returns the original of a whole escaped text.
func unescape(text []byte) []byte {
	u := escaper{undo: true}
	return u.flush(u.append(nil, text))
}

func TestEscape(t *testing.T) {
	t.Parallel()
	run := func(n int) string { return strings.Repeat(`\`, n) }
	tests := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"plain", "a line\n", "a line\n"},
		{"closing tag", "</log>\n", "<\\/log>\n"},
		{"opening tag", "<log>\n", "<\\log>\n"},
		{"footer", "<end_json>\n{}\n</end_json>\n", "<\\end_json>\n{}\n<\\/end_json>\n"},
		{"header", "<start_json></start_json>", "<\\start_json><\\/start_json>"},
		{"upper case", "</LOG > <End_Json\t", "<\\/LOG > <\\End_Json\t"},
		{"already escaped", `<\/log><\\log>`, `<\\/log><\\\log>`},
		{"self closing", "<log/>", "<\\log/>"},
		{"every white space", "<log <log\t<log\n<log\v<log\f<log\r", "<\\log <\\log\t<\\log\n<\\log\v<\\log\f<\\log\r"},
		{"longer word", "<logger> <log4j> </logs> <end_jsons>", "<logger> <log4j> </logs> <end_jsons>"},
		{"other markup", "<module> <a href='x'> 1 < 2 << 3", "<module> <a href='x'> 1 < 2 << 3"},
		{"slash before backslash", `</\log>`, `</\log>`},
		{"two slashes", "<//log>", "<//log>"},
		{"white space inside", "< log> <lo g>", "< log> <lo g>"},
		{"tag after a candidate", "<l<log><<log>", "<l<\\log><<\\log>"},
		{"underscore is no letter case", "<start\x7fjson> <end?json>", "<start\x7fjson> <end?json>"},
		{"unfinished at the end", "<log", "<log"},
		{"run under the cap", "<" + run(63) + "log>", "<" + run(64) + "log>"},
		{"run at the cap", "<" + run(64) + "x", "<" + run(65) + "x"},
		{"run over the cap", "<" + run(200), "<" + run(201)},
		{"run under the cap without tag", "<" + run(63) + "x", "<" + run(63) + "x"},
		{"not text", "\xff<log>\x00\xfe", "\xff<\\log>\x00\xfe"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(escape([]byte(tt.in))); got != tt.want {
				t.Errorf("Escape(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if got := string(unescape([]byte(tt.want))); got != tt.in {
				t.Errorf("Unescape(%q) = %q, want %q", tt.want, got, tt.in)
			}
			for i := range len(tt.in) + 1 {
				for j := i; j <= len(tt.in); j++ {
					if got := string(escapeParts(tt.in[:i], tt.in[i:j], tt.in[j:])); got != tt.want {
						t.Fatalf("split at %d and %d: %q, want %q", i, j, got, tt.want)
					}
				}
			}
		})
	}
}

func TestUnescapeLeavesForeignText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"<log>", `<\logger>`, `\log>`, "<" + strings.Repeat(`\`, 64) + "x"} {
		if got := string(unescape([]byte(text))); got != text {
			t.Errorf("Unescape(%q) = %q", text, got)
		}
	}
}

func escapeParts(parts ...string) []byte {
	var e escaper
	var out []byte
	for _, part := range parts {
		out = e.append(out, []byte(part))
	}
	return e.flush(out)
}

// hostileText draws text that is dense in parts of the frame.
func hostileText() *rapid.Generator[[]byte] {
	word := rapid.SampledFrom([]string{
		"<", "/", "\\", ">", " ", "\n", "\r", "\r\n", "log", "LOG", "end_json", "start_json", "</log>", "<log>\n",
		"<end_json>\n{}\n</end_json>\n", "\n</end_json>", "<lo", "_json", "data: x", "id: 7", "\x00", "\xff", "é",
		strings.Repeat(`\`, 62), strings.Repeat(`\`, 65), "a plain line\n",
	})
	return rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(word, 0, 30).Draw(t, "words"), ""))
	})
}

// cuts draws a way to cut b into pieces.
func cuts(t *rapid.T, b []byte) [][]byte {
	var parts [][]byte
	for len(b) > 0 {
		n := rapid.IntRange(1, min(len(b), 40)).Draw(t, "piece")
		parts = append(parts, b[:n])
		b = b[n:]
	}
	return parts
}

func TestEscapeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := hostileText().Draw(t, "text")
		checkEscape(t, text, cuts(t, text))
	})
}

func checkEscape(t rapid.TB, text []byte, parts [][]byte) {
	t.Helper()
	safe := escape(text)
	if want := escapeByRule(text); !bytes.Equal(safe, want) {
		t.Fatalf("Escape(%q) = %q, the rule says %q", text, safe, want)
	}
	if back := unescape(safe); !bytes.Equal(back, text) {
		t.Fatalf("Unescape(%q) = %q, want %q", safe, back, text)
	}
	if got, want := unescape(text), unescapeByRule(text); !bytes.Equal(got, want) {
		t.Fatalf("Unescape(%q) = %q, the rule says %q", text, got, want)
	}
	var e escaper
	u := escaper{undo: true}
	var escaped, unescaped []byte
	for _, part := range parts {
		escaped = e.append(escaped, part)
		unescaped = u.append(unescaped, part)
	}
	if escaped = e.flush(escaped); !bytes.Equal(escaped, safe) {
		t.Fatalf("in pieces %q: %q, want %q", parts, escaped, safe)
	}
	if unescaped = u.flush(unescaped); !bytes.Equal(unescaped, unescape(text)) {
		t.Fatalf("unescaped in pieces %q: %q, want %q", parts, unescaped, unescape(text))
	}
}

func FuzzEscapeRoundTrip(f *testing.F) {
	f.Add([]byte("a</log>b<\\LOG "), byte(3))
	f.Add([]byte("<"+strings.Repeat(`\`, 70)+"log>"), byte(1))
	f.Fuzz(func(t *testing.T, text []byte, size byte) {
		checkEscape(t, text, inPieces(text, size))
	})
}

// inPieces cuts b into pieces of size bytes, or leaves it whole for zero.
func inPieces(b []byte, size byte) [][]byte {
	if size == 0 {
		return [][]byte{b}
	}
	var parts [][]byte
	for len(b) > 0 {
		n := min(len(b), int(size))
		parts = append(parts, b[:n])
		b = b[n:]
	}
	return parts
}
