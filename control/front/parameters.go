package front

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parameters of a request, and their refusals. A refusal has the member parameter.

// Values returns the parameters of the URL. It refuses malformed text, and repeated parameters that are not in many. It
// drops names that begin with _: clients add them to bypass caches, as in ?_=1732368000.
func (r *Request) Values(many ...string) (url.Values, error) {
	values, err := r.values()
	for name, given := range values {
		if len(given) > 1 && !slices.Contains(many, name) {
			return nil, repeated(name, len(given))
		}
	}
	return values, err
}

func (r *Request) values() (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return url.Values{}, Refuse(http.StatusBadRequest, "The query of the URL cannot be read: %s", err)
	}
	maps.DeleteFunc(values, func(name string, _ []string) bool { return strings.HasPrefix(name, "_") })
	return values, nil
}

// repeated refuses a parameter that is given more than once.
func repeated(name string, times int) *RefusalError {
	name = Printable(name, 64)
	return Refuse(http.StatusBadRequest, "Parameter '%s' is given %d times: give it once", name,
		times).With("parameter", name)
}

// Query are parameters with known names. Err has the first refusal of all its methods: when it is not nil, the values
// that they returned mean nothing.
type Query struct {
	url.Values

	err error
}

// Query returns the parameters of the URL, which must be those of the route, or only these.
func (r *Request) Query(only ...string) *Query {
	known := r.row.Query
	if only != nil {
		known = Named(only...)
	}
	values, err := r.values()
	q := QueryOf(values, known)
	q.Refuse(err)
	return q
}

// Named returns parameters with no more than their names.
func Named(names ...string) (list []Parameter) {
	for _, name := range names {
		list = append(list, Parameter{Name: name})
	}
	return list
}

// Names returns the names of parameters.
func Names(list []Parameter) (names []string) {
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

// QueryOf refuses unknown parameters, and a repeated parameter that is no list.
func QueryOf(values url.Values, known []Parameter) *Query {
	q := &Query{Values: values}
	for name, given := range values {
		i := slices.IndexFunc(known, func(p Parameter) bool { return p.Name == name })
		if i < 0 {
			q.Refuse(unknownParameter(name, known))
		} else if len(given) > 1 && !known[i].List {
			q.Refuse(repeated(name, len(given)))
		}
	}
	return q
}

// Err returns the first refusal.
func (q *Query) Err() error { return q.err }

// Refuse keeps a refusal, unless it is nil or there is one already.
func (q *Query) Refuse(err error) {
	if q.err == nil {
		q.err = err
	}
}

// unknownParameter refuses a parameter that is not known.
func unknownParameter(name string, known []Parameter) *RefusalError {
	name = Printable(name, 64)
	if len(known) == 0 {
		return Refuse(http.StatusBadRequest, "Unknown parameter '%s'; none is known here", name).With("parameter", name)
	}
	names := Names(known)
	return Refuse(http.StatusBadRequest, "Unknown parameter '%s'; known here: %s", name,
		strings.Join(names, ", ")).With("parameter", name).With("parameters", names)
}

// Invalid refuses the value of a parameter.
func Invalid(name, format string, args ...any) *RefusalError {
	return Refuse(http.StatusBadRequest, "Invalid parameter '%s': %s", name,
		fmt.Sprintf(format, args...)).With("parameter", name)
}

// Boolean parses a boolean parameter, which may have no value; fallback is the value of a missing parameter.
func (q *Query) Boolean(name string, fallback bool) bool {
	if !q.Has(name) {
		return fallback
	}
	is, err := strconv.ParseBool(cmp.Or(q.Get(name), "true"))
	if err != nil {
		q.Refuse(Invalid(name, "%s must be true or false", Quote(q.Get(name))))
	}
	return is
}

// Choices parses comma-separated words, which must all be known.
func Choices[T ~string](q *Query, name string, known []T) (chosen []T) {
	text := strings.Join(q.Values[name], ",")
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		word := T(strings.TrimSpace(word))
		if !slices.Contains(known, word) {
			q.Refuse(Invalid(name, "'%s' is none of %v", Printable(string(word), 32), known).With("values", known))
		}
		chosen = append(chosen, word)
	}
	return chosen
}

// Number parses a whole number; fallback is the value of a missing parameter.
func (q *Query) Number(name string, fallback, least, most uint64) uint64 {
	text := q.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		q.Refuse(Invalid(name, "%s must be a whole number from %d to %d", Quote(text), least, most))
	}
	return n
}

// maxWait bounds the parameter wait.
const maxWait = 10 * time.Minute

// Wait parses the parameter wait: a duration (5s, 1m30s) or a number of seconds.
func (q *Query) Wait() time.Duration {
	text := q.Get("wait")
	if text == "" {
		return 0
	}
	wait, err := time.ParseDuration(text)
	if seconds, numErr := strconv.ParseUint(text, 10, 16); numErr == nil {
		wait, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || wait < 0 || wait > maxWait {
		q.Refuse(Invalid("wait", "%s must be a duration such as 5s, at most %s", Quote(text), maxWait))
	}
	return wait
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
