package catalog

import "regexp"

// Param is one parameter of a job.
type Param struct {
	// Name matches ^[A-Za-z][A-Za-z0-9_]{0,62}$ and is not [ReservedParam]. No two of a job differ by case alone: the
	// environment has them in capitals.
	Name string    `json:"name"`
	Type ParamType `json:"type"`
	// Required parameters must be given and have no default. A parameter that is
	// neither required nor has a default may stay without a value.
	Required bool  `json:"required,omitzero"`
	Default  Value `json:"default,omitzero"`
	// Minimum and Maximum are inclusive, for integers and numbers.
	Minimum Value `json:"minimum,omitzero"`
	Maximum Value `json:"maximum,omitzero"`
	// Enum lists the values that are allowed; empty: all.
	Enum []Value `json:"enum,omitempty"`
	// Pattern is an RE2 expression that the whole of a string must match.
	Pattern string `json:"pattern,omitempty"`
	// Normalize is what is done with a string, in this order, before it is checked.
	Normalize []Normalize `json:"normalize,omitempty"`
	Summary   string      `json:"summary,omitempty"`

	pattern *regexp.Regexp
}

// ReservedParam reports whether a parameter with this name would collide with a query parameter of the
// daemon.
func ReservedParam(name string) bool {
	switch name {
	case "format", "offset", "wait", "id", "action":
		return true
	}
	return false
}

var paramName = words(`[A-Za-z][A-Za-z0-9_]*`, 63)

// maxPattern bounds the text of a pattern. RE2 takes linear time to match, but
// the size of a compiled expression grows with its text.
const maxPattern = 1000

// wholeMatch compiles a pattern so that it must match all of a value.
func wholeMatch(pattern string) (*regexp.Regexp, error) {
	// Compiled alone first: "a)(b" would be valid only inside the group.
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}
