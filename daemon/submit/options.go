package submit

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/statefs"
)

// Options are the members of a submit besides the parameters of the job. The zero value uses the settings of
// the job.
type Options struct {
	// Priority replaces the job's; higher ones start first.
	Priority *int
	// Delay is the minimum time between the submit and the start, NotBefore the earliest start; at most one
	// of them is set.
	Delay     time.Duration
	NotBefore *time.Time
	// After are operations that it waits for; Require "" means success.
	After   []statefs.ID
	Require string
	// Tags are added to those of the job.
	Tags []string
	// Key replaces the job's key; an empty one means no key.
	Key *string
	// IdempotencyKey identifies the submit, so that a repetition makes no second operation; "" is none.
	IdempotencyKey string
}

// The names of the options, in a URL and as members of a JSON entry.
const (
	optionPriority  = "priority"
	optionDelay     = "delay"
	optionNotBefore = "not_before"
	optionAfter     = "after"
	optionRequire   = "require"
	optionTags      = "tags"
	optionKey       = "key"
	// Over HTTP this option is a header.
	optionIdempotencyKey = "idempotency_key"
)

// Names returns the options that a URL may contain.
func Names() []string {
	return []string{optionPriority, optionDelay, optionNotBefore, optionAfter, optionRequire, optionTags, optionKey}
}

const (
	maxTags    = 32
	longestTag = 64 // characters, as in a job file
	maxAfter   = 1000
	// longestDelay is longer than any plan, and far below the latest time that can be formatted.
	longestDelay = 10 * 365 * 24 * time.Hour
	// longestIdempotencyKey is in bytes.
	longestIdempotencyKey = 255
)

// OptionError describes an invalid option of a submit.
type OptionError struct {
	Option string
	Reason string // a clause such as "'x' is not an integer"
}

// Error returns "Invalid parameter 'priority': 'x' is not an integer".
func (e *OptionError) Error() string {
	return fmt.Sprintf("Invalid parameter '%s': %s", e.Option, e.Reason)
}

func wrong(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

// FromQuery parses the options of a URL. It ignores parameters that are not in [Names]. Only tags and after
// may be repeated.
func FromQuery(values url.Values) (Options, error) {
	var o Options
	for _, name := range Names() {
		given := values[name]
		if len(given) == 0 {
			continue
		}
		if len(given) > 1 && name != optionTags && name != optionAfter {
			return Options{}, wrong(name, "it is given %d times: give it once", len(given))
		}
		if err := o.setText(name, given); err != nil {
			return Options{}, err
		}
	}
	return o, o.check()
}

// setText sets an option from text; given has one element, except for lists, whose elements are
// comma-separated.
func (o *Options) setText(name string, given []string) (err error) {
	text := given[0]
	switch name {
	case optionPriority:
		n, err := strconv.Atoi(text)
		if err != nil {
			return wrong(name, "%s is not an integer", quote(text))
		}
		o.Priority = &n
	case optionDelay:
		delay, ok := param.ParseDuration(text)
		switch {
		case param.TooLong(text):
			return wrong(name, "%s is longer than %dd", quote(text), int(longestDelay.Hours()/24))
		case !ok:
			return wrong(name, "%s is not a duration, such as 90s, 1h30m or 2d", quote(text))
		}
		o.Delay = delay
	case optionNotBefore:
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return wrong(name, "%s is not a time, such as 2026-11-23T09:00:00+01:00", quote(text))
		}
		o.NotBefore = &at
	case optionAfter:
		o.After, err = idsFrom(strings.Split(strings.Join(given, ","), ","))
	case optionRequire:
		o.Require = text
	case optionTags:
		o.Tags = slices.DeleteFunc(strings.Split(strings.Join(given, ","), ","), func(tag string) bool { return tag == "" })
	case optionKey:
		o.Key = &text
	case optionIdempotencyKey:
		if text == "" {
			return wrong(name, "it is empty")
		}
		o.IdempotencyKey = text
	}
	return err
}

func idsFrom(texts []string) ([]statefs.ID, error) {
	var ids []statefs.ID
	for _, text := range texts {
		if text == "" {
			continue
		}
		id, err := statefs.ParseID(text)
		if err != nil {
			return nil, wrong(optionAfter, "%s is not the ID of an operation", quote(text))
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		if len(ids) > maxAfter {
			return nil, wrong(optionAfter, "there are more than %d", maxAfter)
		}
	}
	return ids, nil
}

// check checks the bounds and combinations of options from any source.
func (o *Options) check() error {
	switch {
	case o.Priority != nil && (*o.Priority > statefs.MaxPriority || *o.Priority < -statefs.MaxPriority):
		return wrong(optionPriority, "%d is beyond the priorities from -%d to %d", *o.Priority, statefs.MaxPriority,
			statefs.MaxPriority)
	case o.Delay > longestDelay:
		return wrong(optionDelay, "it is longer than %dd", int(longestDelay.Hours()/24))
	case o.Delay > 0 && o.NotBefore != nil:
		return wrong(optionNotBefore, "give it or 'delay', not both")
	case o.NotBefore != nil && (o.NotBefore.Year() < 2000 || o.NotBefore.Year() > 9998):
		return wrong(optionNotBefore, "it is a time of the year %d", o.NotBefore.Year())
	case o.Require != "" && o.Require != statefs.RequireSuccess && o.Require != statefs.RequireEnd:
		return wrong(optionRequire, "%s is not one of %s, %s", quote(o.Require), statefs.RequireSuccess, statefs.RequireEnd)
	case o.Require != "" && len(o.After) == 0:
		return wrong(optionRequire, "it has a meaning only with 'after'")
	}
	if err := checkTags(o.Tags); err != nil {
		return err
	}
	if o.Key != nil {
		if why := badText(*o.Key, catalog.MaxKey); why != "" {
			return wrong(optionKey, "%s", why)
		}
	}
	if why := badText(o.IdempotencyKey, longestIdempotencyKey); why != "" {
		return wrong(optionIdempotencyKey, "%s", why)
	}
	return nil
}

// SetIdempotencyKey sets the idempotency key, which HTTP clients send in a header.
func (o *Options) SetIdempotencyKey(key string) error {
	if err := o.setText(optionIdempotencyKey, []string{key}); err != nil {
		return err
	}
	return o.check()
}

func checkTags(tags []string) error {
	for _, tag := range tags {
		switch {
		case tag == "" || strings.Contains(tag, ","):
			return wrong(optionTags, "%s is empty or has a comma", quote(tag))
		case utf8.RuneCountInString(tag) > longestTag:
			return wrong(optionTags, "%s is longer than %d characters", quote(tag), longestTag)
		case strings.ContainsFunc(tag, func(c rune) bool {
			return unicode.IsSpace(c) || !unicode.IsPrint(c) ||
				c == utf8.RuneError
		}):
			return wrong(optionTags, "%s has a space or what cannot be printed", quote(tag))
		}
	}
	if len(tags) > maxTags {
		return wrong(optionTags, "there are more than %d", maxTags)
	}
	return nil
}

// badText returns why a name is invalid, or "".
func badText(text string, most int) string {
	switch {
	case len(text) > most:
		return fmt.Sprintf("it is longer than %d bytes", most)
	case !utf8.ValidString(text):
		return "it is not UTF-8 text"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "it has a control character"
	}
	return ""
}

// quote puts text from outside into a message.
func quote(text string) string { return phrase.Quote(strings.ToValidUTF8(text, "?")) }
