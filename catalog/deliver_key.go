package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// resultReference finds what is replaced in a key by a member of the result.
var resultReference = regexp.MustCompile(`\$\{result\.([A-Za-z0-9_-]+)\}`)

// expandKey replaces the references in a key once; references inside values stay. The error names the member
// of the result that cannot be part of a name.
func expandKey(key string, v Values) (string, error) {
	var b strings.Builder
	at := 0
	for _, m := range resultReference.FindAllStringSubmatchIndex(key, -1) {
		b.WriteString(Expand(key[at:m[0]], v))
		text, err := v.resultText(key[m[2]:m[3]])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		at = m[1]
	}
	b.WriteString(Expand(key[at:], v))
	return b.String(), nil
}

// resultText is a member of the result as a part of a name: a short text that is not empty, a number, or true or false.
func (v Values) resultText(name string) (string, error) {
	raw, ok := json.RawMessage(nil), false
	if v.Result != nil {
		raw, ok = v.Result(name)
	}
	raw = bytes.TrimSpace(raw)
	var text string
	switch {
	case !ok || len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return "", fmt.Errorf("the result has no member %q, which the key needs", name)
	case raw[0] == '{' || raw[0] == '[':
		return "", fmt.Errorf("the member %q of the result, which the key needs, is neither a text nor a number", name)
	case raw[0] != '"':
		text = string(raw)
	case json.Unmarshal(raw, &text) != nil:
		return "", fmt.Errorf("the member %q of the result, which the key needs, cannot be read", name)
	}
	switch {
	case text == "":
		return "", fmt.Errorf("the member %q of the result, which the key needs, is empty", name)
	case len(text) > maxNamePart:
		return "", fmt.Errorf("the member %q of the result, which the key needs, is longer than %d bytes", name, maxNamePart)
	}
	return text, nil
}
