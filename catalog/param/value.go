// Package param has the parameters of jobs: their types, rules and values, and the amounts and durations of job files.
// [Canonical] gives a JSON text the one form in which equal values are equal bytes. It knows nothing of jobs and files.
package param

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog/phrase"
)

// Type is the type of a parameter, in the words of JSON Schema.
type Type string

// The types a parameter can have.
const (
	StringType  Type = "string"
	IntegerType Type = "integer" // within ±MaxInteger
	NumberType  Type = "number"  // a finite IEEE 754 double
	BooleanType Type = "boolean"
	ObjectType  Type = "object" // any JSON object, kept as canonical JSON
	ArrayType   Type = "array"  // any JSON array, kept as canonical JSON
)

// Types are the types of a parameter, in the order of the documentation.
var Types = []string{
	string(StringType), string(IntegerType), string(NumberType), string(BooleanType),
	string(ObjectType), string(ArrayType),
}

// Composite reports whether values of the type contain others.
func (t Type) Composite() bool { return t == ObjectType || t == ArrayType }

// MaxInteger is the largest integer a parameter or a range can have. Beyond it
// JSON readers that hold numbers as doubles change the value (RFC 8259, section 6).
const MaxInteger = 1<<53 - 1

// MaxString is the length of the longest string value, in bytes.
const MaxString = 64 << 10

// Value is one typed value. The zero Value is no value. Values are comparable:
// two that print the same and have the same type are equal.
type Value struct {
	Kind    Type
	text    string
	integer int64
	number  float64
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.Kind == "" }

// Text is the form in which a value replaces a reference and reaches a command:
// a string as it is, numbers, objects and arrays as in canonical JSON, true or
// false.
func (v Value) Text() string { return v.text }

// Integer is the value of an integer.
func (v Value) Integer() int64 { return v.integer }

// Any gives the value as string, int64, float64, bool or, of an object and an array, json.RawMessage; nil for no value.
func (v Value) Any() any {
	switch v.Kind {
	case StringType:
		return v.text
	case IntegerType:
		return v.integer
	case NumberType:
		return v.number
	case BooleanType:
		return v.text == "true"
	case ObjectType, ArrayType:
		return json.RawMessage(v.text)
	}
	return nil
}

// MarshalJSON gives the canonical JSON of the value (RFC 8785).
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// AppendJSON appends the canonical JSON of the value (RFC 8785).
func (v Value) AppendJSON(b []byte) []byte {
	switch v.Kind {
	case StringType:
		return AppendString(b, v.text)
	case IntegerType, NumberType, BooleanType, ObjectType, ArrayType:
		return append(b, v.text...)
	}
	return append(b, "null"...)
}

// Compare orders two values of one numeric type.
func (v Value) Compare(w Value) int { return cmp.Compare(v.number, w.number) }

// The grammar of JSON numbers (RFC 8259, section 6).
var (
	integerText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// ParseText parses text as a value of type t; reason is why it is invalid, as the second half of a sentence.
func ParseText(t Type, s string) (v Value, reason string) {
	switch t {
	case StringType:
		return stringValue(s)
	case IntegerType:
		return ParseInteger(s)
	case NumberType:
		return ParseNumber(s)
	case BooleanType:
		switch s {
		case "true", "1":
			return Value{Kind: t, text: "true"}, ""
		case "false", "0":
			return Value{Kind: t, text: "false"}, ""
		}
		return Value{}, phrase.Quote(s) + " is not a boolean (true, false, 1 or 0)"
	case ObjectType, ArrayType:
		return compositeValue(t, s)
	}
	return Value{}, "the parameter has no type"
}

func stringValue(s string) (Value, string) {
	switch {
	case len(s) > MaxString:
		return Value{}, fmt.Sprintf("the value is longer than %s", Bytes(MaxString))
	case !utf8.ValidString(s):
		return Value{}, "the value is not UTF-8 text"
	case strings.Contains(s, "\x00"):
		return Value{}, "the value has a NUL character"
	}
	return Value{Kind: StringType, text: s}, ""
}

// compositeValue reads an object or an array.
func compositeValue(t Type, s string) (Value, string) {
	s = strings.Trim(s, JSONSpace)
	if first := map[Type]string{ObjectType: "{", ArrayType: "["}[t]; !strings.HasPrefix(s, first) {
		return Value{}, phrase.Quote(s) + " is not " + Article(t) + " of JSON"
	}
	if len(s) > MaxString {
		return Value{}, fmt.Sprintf("the value is longer than %s", Bytes(MaxString))
	}
	canonical, err := Canonical([]byte(s))
	if err != nil {
		return Value{}, err.Error()
	}
	if len(canonical) > MaxString { // numbers can get longer
		return Value{}, fmt.Sprintf("the value is longer than %s", Bytes(MaxString))
	}
	return Value{Kind: t, text: string(canonical)}, ""
}

// ParseInteger returns the value of a decimal integer, or a text that says what is wrong with it.
func ParseInteger(s string) (Value, string) {
	if !integerText.MatchString(s) {
		return Value{}, phrase.Quote(s) + " is not an integer"
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > MaxInteger || n < -MaxInteger {
		return Value{}, fmt.Sprintf("%s is beyond the integers from -%d to %d", phrase.Quote(s),
			int64(MaxInteger), int64(MaxInteger))
	}
	return Value{Kind: IntegerType, integer: n, number: float64(n), text: strconv.FormatInt(n, 10)}, ""
}

// ParseNumber returns the value of a decimal number, or a text that says what is wrong with it.
func ParseNumber(s string) (Value, string) {
	if !numberText.MatchString(s) {
		return Value{}, phrase.Quote(s) + " is not a number"
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return Value{}, phrase.Quote(s) + " is too large a number"
	}
	if f == 0 {
		f = 0 // minus zero and zero are one value
	}
	return Value{Kind: NumberType, number: f, text: formatNumber(f)}, ""
}

// ParseJSON turns one JSON value into a value of type t.
func ParseJSON(t Type, raw json.RawMessage) (Value, string) {
	text := string(raw)
	switch {
	case raw[0] == '"':
		if t != StringType {
			return Value{}, phrase.Clip(text) + " is a text, not " + Article(t)
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return Value{}, "the string cannot be read"
		}
		if strings.ContainsRune(s, utf8.RuneError) && loneSurrogate(text) {
			return Value{}, "the string has half a surrogate pair"
		}
		return stringValue(s)
	case t.Composite():
		return compositeValue(t, text)
	case t == StringType, raw[0] == '{', raw[0] == '[', t == BooleanType && text != "true" && text != "false":
		return Value{}, phrase.Quote(text) + " is not " + Article(t)
	}
	return ParseText(t, text)
}

// Article returns the type with its article, for messages: "an integer".
func Article(t Type) string {
	switch t {
	case IntegerType, ObjectType, ArrayType:
		return "an " + string(t)
	case StringType, NumberType, BooleanType:
	}
	return "a " + string(t)
}
