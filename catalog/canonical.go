package catalog

import (
	"bytes"
	"math"
	"strconv"
)

// Canonical JSON is RFC 8785: equal values give equal bytes, so the bytes can be
// hashed and compared. encoding/json differs from it in strings (it escapes
// U+2028 and, by default, <, > and &) and in minus zero.

// appendString writes a JSON string as RFC 8785, section 3.2.2.2 says.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}

// formatNumber writes a finite double as ECMAScript's Number::toString does
// (RFC 8785, section 3.2.2.3).
func formatNumber(f float64) string {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	b := strconv.AppendFloat(nil, f, format, -1, 64)
	if format == 'e' {
		// Go writes at least two digits of exponent: 1e-09.
		b = bytes.Replace(b, []byte("e-0"), []byte("e-"), 1)
		b = bytes.Replace(b, []byte("e+0"), []byte("e+"), 1)
	}
	return string(b)
}
