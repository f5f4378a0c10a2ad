package front

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Parameters of a request, and their refusals. A refusal has the member parameter.

// Values returns the parameters of the URL. It refuses malformed text, and repeated parameters that are not in many. It
// drops names that begin with _: clients add them to bypass caches, as in ?_=1732368000.
func (r *Request) Values(many ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "The query of the URL cannot be read: %s", err)
	}
	maps.DeleteFunc(values, func(name string, _ []string) bool { return strings.HasPrefix(name, "_") })
	return values, Once(values, many...)
}

// Once refuses parameters that are given more than once and are not in many.
func Once(values url.Values, many ...string) error {
	for name, given := range values {
		if len(given) > 1 && !slices.Contains(many, name) {
			return repeated(name, len(given))
		}
	}
	return nil
}

// repeated refuses a parameter that is given more than once.
func repeated(name string, times int) *RefusalError {
	name = Printable(name, 64)
	return Refuse(http.StatusBadRequest, "Parameter '%s' is given %d times: give it once", name,
		times).With("parameter", name)
}

// AllowParameters refuses query parameters that a route does not have.
func AllowParameters(values url.Values, known ...string) error {
	for name := range values {
		if !slices.Contains(known, name) {
			return UnknownParameter(name, known)
		}
	}
	return nil
}

// UnknownParameter refuses a parameter that is not known.
func UnknownParameter(name string, known []string) *RefusalError {
	name = Printable(name, 64)
	if len(known) == 0 {
		return Refuse(http.StatusBadRequest, "Unknown parameter '%s'; none is known here", name).With("parameter", name)
	}
	return Refuse(http.StatusBadRequest, "Unknown parameter '%s'; known here: %s", name,
		strings.Join(known, ", ")).With("parameter", name).With("parameters", known)
}

// NoParameters refuses every parameter.
func (r *Request) NoParameters() error {
	values, err := r.Values()
	if err != nil {
		return err
	}
	return AllowParameters(values)
}

// Boolean parses a boolean parameter, which may have no value.
func Boolean(values url.Values, name string) (bool, error) {
	given := values[name]
	if len(given) == 0 {
		return false, nil
	}
	switch given[0] {
	case "", "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, Refuse(http.StatusBadRequest, "Invalid parameter '%s': %s must be true or false", name,
		Quote(given[0])).With("parameter", name)
}

// Choices parses comma-separated words, which must all be known.
func Choices[T ~string](values url.Values, name string, known []T) (chosen []T, err error) {
	if values.Get(name) == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(values.Get(name), ",") {
		word := T(strings.TrimSpace(word))
		if !slices.Contains(known, word) {
			return nil, Refuse(http.StatusBadRequest, "Invalid parameter '%s': '%s' is none of %v", name,
				Printable(string(word), 32), known).
				With("parameter", name).With("values", known)
		}
		chosen = append(chosen, word)
	}
	return chosen, nil
}

// Number parses a whole number; fallback is the value of a missing parameter.
func Number(values url.Values, name string, fallback, least, most uint64) (uint64, error) {
	text := values.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, Refuse(http.StatusBadRequest, "Invalid parameter '%s': %s must be a whole number from %d to %d", name,
			Quote(text), least, most).With("parameter", name)
	}
	return n, nil
}

// Join replaces the repeated values of these parameters by one comma-separated value.
func Join(values url.Values, names []string) {
	for _, name := range names {
		if given := values[name]; len(given) > 1 {
			values[name] = []string{strings.Join(given, ",")}
		}
	}
}

// MaxWait bounds the parameter wait.
const MaxWait = 10 * time.Minute

// WaitTime parses a duration (5s, 1m30s) or a number of seconds.
func WaitTime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if seconds, numErr := strconv.ParseUint(text, 10, 16); numErr == nil {
		wait, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || wait < 0 || wait > MaxWait {
		return 0, Refuse(http.StatusBadRequest, "Invalid parameter 'wait': %s must be a duration such as 5s, at most %s",
			Quote(text), MaxWait).With("parameter", "wait")
	}
	return wait, nil
}

// BodyParameters adds the members of a JSON body to the parameters of the URL.
func (r *Request) BodyParameters(values url.Values) error {
	body, err := r.ReadBody()
	if err != nil || body == nil {
		return err
	}
	var members map[string]string
	if err := json.Unmarshal(body, &members); err != nil {
		return Refuse(http.StatusBadRequest,
			`The body must be a JSON object of strings, as in {"id": "...", "action": "pause"}`)
	}
	for name, value := range members {
		if values.Has(name) {
			return repeated(name, 2)
		}
		values.Set(name, value)
	}
	return nil
}

// Quote quotes a value that a client sent, for messages.
func Quote(text string) string { return "'" + Printable(text, 64) + "'" }

// Printable cuts text to most bytes and replaces unprintable characters by question marks.
func Printable(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}
