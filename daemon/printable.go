package daemon

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable returns text as it stands in a line of the log. A file name may hold anything: a line break in it must not look like a
// line of ours, and what moves the cursor must not reach a terminal. Text without such characters is unchanged; in all other text
// they are written as \n, \x1b or \u2028, and a backslash as two.
func printable(text string) string {
	if !strings.ContainsFunc(text, unprintable) && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1, unprintable(r), r == '\\':
			quoted := strconv.QuoteToASCII(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// unprintable are control characters, and what ends a line or turns its direction in a terminal.
func unprintable(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Bidi_Control, r)
}
