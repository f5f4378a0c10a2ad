package param

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog/phrase"
)

// Canonical JSON is RFC 8785: equal values give equal bytes, so the bytes can be
// hashed and compared. encoding/json differs from it in strings (it escapes
// U+2028 and, by default, <, > and &) and in minus zero.

// AppendString appends a JSON string in the format of RFC 8785, section 3.2.2.2.
func AppendString(b []byte, s string) []byte {
	const hex, controls, letters = "0123456789abcdef", "\b\t\n\f\r", "btnfr" // letters has the escape of each control
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case strings.IndexByte(controls, c) >= 0:
			b = append(b, '\\', letters[strings.IndexByte(controls, c)])
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

// JSONSpace is what JSON takes for white space, which is less than Go does.
const JSONSpace = " \t\r\n"

// maxNesting bounds objects and arrays within each other: more is no parameter, and reading goes as deep.
const maxNesting = 64

// Canonical gives any JSON text in the form of RFC 8785. What has no such form, or means different things to
// different readers, is an error: names that are given twice, halves of surrogate pairs, numbers beyond a double,
// integers that a double does not hold.
func Canonical(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the text is not UTF-8")
	}
	if why := TooDeep(data); why != "" {
		return nil, errors.New(why)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	c := canonicalizer{in: in, data: data}
	out, err := c.value()
	if err != nil {
		return nil, err
	}
	if len(bytes.Trim(data[in.InputOffset():], JSONSpace)) > 0 {
		return nil, errors.New("text follows the JSON value")
	}
	return out, nil
}

// TooDeep returns an error text if a JSON text is nested deeper than the limit of the parsers, without
// parsing deeper than that.
func TooDeep(data []byte) string {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return fmt.Sprintf("it nests deeper than %d levels", maxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return ""
}

// canonicalizer writes the tokens of a JSON text again.
type canonicalizer struct {
	in   *json.Decoder
	data []byte
}

func (c *canonicalizer) token() (json.Token, error) {
	start := c.in.InputOffset()
	token, err := c.in.Token()
	if err != nil {
		return nil, errors.New("it is no JSON: " + JSONError(err))
	}
	if s, ok := token.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
		raw := string(c.data[start:c.in.InputOffset()])
		if loneSurrogate(raw[strings.IndexByte(raw, '"'):]) {
			return nil, errors.New("a string has half a surrogate pair")
		}
	}
	return token, nil
}

func (c *canonicalizer) value() ([]byte, error) {
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return c.object()
		}
		return c.array()
	case string:
		return AppendString(nil, v), nil
	case json.Number:
		text := v.String()
		n, reason := ParseNumber(text)
		if reason != "" {
			return nil, errors.New(reason)
		}
		if integerText.MatchString(text) && text != "-0" && n.text != text {
			return nil, fmt.Errorf("the integer %s has more digits than readers of JSON keep; write it as a string",
				phrase.Quote(text))
		}
		return []byte(n.text), nil
	case bool:
		return strconv.AppendBool(nil, v), nil
	}
	return []byte("null"), nil
}

func (c *canonicalizer) array() ([]byte, error) {
	var elements [][]byte
	for c.in.More() {
		element, err := c.value()
		if err != nil {
			return nil, err
		}
		elements = append(elements, element)
	}
	_, err := c.token()
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]")), err
}

func (c *canonicalizer) object() ([]byte, error) {
	members := map[string][]byte{}
	for c.in.More() {
		token, err := c.token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder accepts nothing else as a name
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("the name %s is given twice", phrase.Quote(name))
		}
		if members[name], err = c.value(); err != nil {
			return nil, err
		}
	}
	var written [][]byte
	for _, name := range slices.SortedFunc(maps.Keys(members), compareUTF16) {
		written = append(written, slices.Concat(AppendString(nil, name), []byte(":"), members[name]))
	}
	_, err := c.token()
	return slices.Concat([]byte("{"), bytes.Join(written, []byte(",")), []byte("}")), err
}

// compareUTF16 orders names by their UTF-16 code units.
func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// JSONError formats an error of the JSON decoder for people.
func JSONError(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it is cut off"
	}
	return err.Error()
}

// loneSurrogate reports whether a JSON string contains half a surrogate pair. The decoder replaces it by
// U+FFFD, so the result has more of those than the input.
func loneSurrogate(raw string) bool {
	var s string
	if json.Unmarshal([]byte(raw), &s) != nil {
		return true
	}
	written := strings.Count(raw, "\ufffd") + strings.Count(strings.ToLower(raw), `\ufffd`)
	return strings.Count(s, "\ufffd") > written
}
