package catalog

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParamType is the type of a parameter, in the words of JSON Schema.
type ParamType string

// The types a parameter can have.
const (
	StringType  ParamType = "string"
	IntegerType ParamType = "integer" // within ±MaxInteger
	NumberType  ParamType = "number"  // a finite IEEE 754 double
	BooleanType ParamType = "boolean"
	ObjectType  ParamType = "object" // any JSON object, kept as canonical JSON
	ArrayType   ParamType = "array"  // any JSON array, kept as canonical JSON
)

var paramTypes = []string{
	string(StringType), string(IntegerType), string(NumberType), string(BooleanType),
	string(ObjectType), string(ArrayType),
}

// composite reports whether values of the type contain others.
func (t ParamType) composite() bool { return t == ObjectType || t == ArrayType }

// MaxInteger is the largest integer a parameter or a range can have. Beyond it
// JSON readers that hold numbers as doubles change the value (RFC 8259, section 6).
const MaxInteger = 1<<53 - 1

// MaxString is the length of the longest string value, in bytes.
const MaxString = 64 << 10

// Value is one typed value. The zero Value is no value. Values are comparable:
// two that print the same and have the same type are equal.
type Value struct {
	kind    ParamType
	text    string
	integer int64
	number  float64
}

// Type gives the type, "" for no value.
func (v Value) Type() ParamType { return v.kind }

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.kind == "" }

// Text is the form in which a value replaces a reference and reaches a command:
// a string as it is, numbers, objects and arrays as in canonical JSON, true or
// false.
func (v Value) Text() string { return v.text }

// Any gives the value as string, int64, float64, bool or, of an object and an array, json.RawMessage; nil for no value.
func (v Value) Any() any {
	switch v.kind {
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
func (v Value) MarshalJSON() ([]byte, error) { return v.appendJSON(nil), nil }

func (v Value) appendJSON(b []byte) []byte {
	switch v.kind {
	case StringType:
		return appendString(b, v.text)
	case IntegerType, NumberType, BooleanType, ObjectType, ArrayType:
		return append(b, v.text...)
	}
	return append(b, "null"...)
}

// compare orders two values of one numeric type.
func (v Value) compare(w Value) int {
	switch {
	case v.number < w.number:
		return -1
	case v.number > w.number:
		return 1
	}
	return 0
}

func integerValue(n int64) Value {
	return Value{kind: IntegerType, integer: n, number: float64(n), text: strconv.FormatInt(n, 10)}
}

func numberValue(f float64) Value {
	if f == 0 {
		f = 0 // minus zero and zero are one value
	}
	return Value{kind: NumberType, number: f, text: formatNumber(f)}
}

func booleanValue(b bool) Value {
	return Value{kind: BooleanType, text: strconv.FormatBool(b)}
}

// The grammar of JSON numbers (RFC 8259, section 6).
var (
	integerText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// parseText parses text as a value of type t; reason is why it is invalid, as the second half of a sentence.
func parseText(t ParamType, s string) (v Value, reason string) {
	switch t {
	case StringType:
		return stringValue(s)
	case IntegerType:
		return parseInteger(s)
	case NumberType:
		return parseNumber(s)
	case BooleanType:
		switch s {
		case "true", "1":
			return booleanValue(true), ""
		case "false", "0":
			return booleanValue(false), ""
		}
		return Value{}, quote(s) + " is not a boolean (true, false, 1 or 0)"
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
	return Value{kind: StringType, text: s}, ""
}

// compositeValue reads an object or an array.
func compositeValue(t ParamType, s string) (Value, string) {
	s = strings.Trim(s, jsonSpace)
	if first := map[ParamType]string{ObjectType: "{", ArrayType: "["}[t]; !strings.HasPrefix(s, first) {
		return Value{}, quote(s) + " is not " + article(t) + " of JSON"
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
	return Value{kind: t, text: string(canonical)}, ""
}

func parseInteger(s string) (Value, string) {
	if !integerText.MatchString(s) {
		return Value{}, quote(s) + " is not an integer"
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > MaxInteger || n < -MaxInteger {
		return Value{}, fmt.Sprintf("%s is beyond the integers from -%d to %d", quote(s),
			int64(MaxInteger), int64(MaxInteger))
	}
	return integerValue(n), ""
}

func parseNumber(s string) (Value, string) {
	if !numberText.MatchString(s) {
		return Value{}, quote(s) + " is not a number"
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return Value{}, quote(s) + " is too large a number"
	}
	return numberValue(f), ""
}

// quote puts text from outside into a message: single quotes, control characters
// escaped, cut to a readable length.
func quote(s string) string {
	q := strconv.Quote(clip(s))
	return "'" + strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`) + "'"
}

// check returns why a value breaks the parameter's rules, or "".
func (p *Param) check(v Value) string {
	switch {
	case !p.Minimum.IsZero() && v.compare(p.Minimum) < 0:
		return fmt.Sprintf("%s is less than the minimum %s", v.text, p.Minimum.text)
	case !p.Maximum.IsZero() && v.compare(p.Maximum) > 0:
		return fmt.Sprintf("%s is more than the maximum %s", v.text, p.Maximum.text)
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, v):
		words := make([]string, len(p.Enum))
		for i, e := range p.Enum {
			words[i] = e.text
		}
		return fmt.Sprintf("%s is not one of %s", quote(v.text), clip(strings.Join(words, ", ")))
	case p.pattern != nil && !p.pattern.MatchString(v.text):
		return fmt.Sprintf("%s does not match the pattern %s", quote(v.text), clip(p.Pattern))
	}
	return ""
}
