package catalog

import "strings"

// Normalize is one way in which a text is made equal to others that mean the same.
type Normalize string

// The values of normalize.
const (
	NormalizeTrim      Normalize = "trim"       // without white space at its ends
	NormalizeLowercase Normalize = "lowercase"  // in small letters, as Unicode maps them
	NormalizeDropBlank Normalize = "drop_blank" // one of white space alone counts as no value
)

var normalizations = []string{string(NormalizeTrim), string(NormalizeLowercase), string(NormalizeDropBlank)}

// normalized gives a value as it is used: it is what runs, what a pattern is held against, and what makes operations
// equal. A second time changes nothing.
func (p *Param) normalized(v Value) (Value, string) {
	if len(p.Normalize) == 0 || v.kind != StringType {
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
