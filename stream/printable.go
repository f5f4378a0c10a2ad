package stream

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text with unsafe characters escaped, for a line of the log. A file name may
// hold any character: a line break in it must not look like a line of the daemon, and a control
// sequence must not reach a terminal. Text without such characters is returned unchanged. In all
// other text they become \n, \x1b or \u2028, and a backslash is doubled.
func Printable(text string) string {
	if !strings.ContainsFunc(text, Unprintable) && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1, Unprintable(r), r == '\\':
			quoted := strconv.QuoteToASCII(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// Unprintable reports whether r is a control character, ends a line, or changes the text direction
// in a terminal.
func Unprintable(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) ||
		unicode.Is(unicode.Bidi_Control, r)
}
