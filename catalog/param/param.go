package param

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/phrase"
)

// Param is one parameter of a job.
type Param struct {
	// Name matches ^[A-Za-z][A-Za-z0-9_]{0,62}$ and is not [ReservedParam]. No two of a job differ by case alone: the
	// environment has them in capitals.
	Name string
	Type Type
	// Required parameters must be given and have no default. A parameter that is
	// neither required nor has a default may stay without a value.
	Required bool
	Default  Value
	// Minimum and Maximum are inclusive, for integers and numbers.
	Minimum Value
	Maximum Value
	// Enum lists the values that are allowed; empty: all.
	Enum []Value
	// Pattern is an RE2 expression that the whole of a string must match.
	Pattern string
	// Normalize is what is done with a string, in this order, before it is checked.
	Normalize []Normalize
	Summary   string

	pattern *regexp.Regexp
}

// ReservedParam reports whether a parameter with this name would collide with a query parameter of the
// daemon.
func ReservedParam(name string) bool {
	return slices.Contains([]string{"format", "offset", "wait", "id", "action"}, name)
}

// MaxPattern bounds the text of a pattern. RE2 takes linear time to match, but
// the size of a compiled expression grows with its text.
const MaxPattern = 1000

// SetPattern sets the pattern, which must match all of a value. An expression that is valid alone is asked for, because
// "a)(b" would be valid only inside the group.
func (p *Param) SetPattern(expression *regexp.Regexp) (err error) {
	p.Pattern = expression.String()
	p.pattern, err = regexp.Compile(`\A(?:` + p.Pattern + `)\z`)
	return err
}

// Normalize is one way in which a text is made equal to others that mean the same.
type Normalize string

// The values of normalize.
const (
	NormalizeTrim      Normalize = "trim"       // without white space at its ends
	NormalizeLowercase Normalize = "lowercase"  // in small letters, as Unicode maps them
	NormalizeDropBlank Normalize = "drop_blank" // one of white space alone counts as no value
)

// Normalizations are the values of normalize, in the order of the documentation.
var Normalizations = []string{string(NormalizeTrim), string(NormalizeLowercase), string(NormalizeDropBlank)}

// Normalized gives a value as it is used: it is what runs, what a pattern is held against, and what makes operations
// equal. A second time changes nothing.
func (p *Param) Normalized(v Value) (Value, string) {
	if len(p.Normalize) == 0 || v.Kind != StringType {
		return v, ""
	}
	text := v.text
	for _, n := range p.Normalize {
		switch n {
		case NormalizeTrim:
			text = strings.TrimSpace(text)
		case NormalizeLowercase:
			text = strings.ToLower(text)
		case NormalizeDropBlank:
			if strings.TrimSpace(text) == "" {
				return Value{}, ""
			}
		}
	}
	return stringValue(text) // small letters can be longer than large ones
}

// Accept gives a value as it is used, or why it breaks the parameter's rules.
func (p *Param) Accept(v Value) (used Value, reason string) {
	used, reason = p.Normalized(v)
	if reason == "" && !used.IsZero() {
		reason = p.Check(used)
	}
	return used, reason
}

// Check returns why a value breaks the parameter's rules, or "".
func (p *Param) Check(v Value) string {
	switch {
	case !p.Minimum.IsZero() && v.Compare(p.Minimum) < 0:
		return fmt.Sprintf("%s is less than the minimum %s", v.text, p.Minimum.text)
	case !p.Maximum.IsZero() && v.Compare(p.Maximum) > 0:
		return fmt.Sprintf("%s is more than the maximum %s", v.text, p.Maximum.text)
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, v):
		words := make([]string, len(p.Enum))
		for i, e := range p.Enum {
			words[i] = e.text
		}
		return fmt.Sprintf("%s is not one of %s", phrase.Quote(v.text), phrase.Clip(strings.Join(words, ", ")))
	case p.pattern != nil && !p.pattern.MatchString(v.text):
		return fmt.Sprintf("%s does not match the pattern %s", phrase.Quote(v.text), phrase.Clip(p.Pattern))
	}
	return ""
}
