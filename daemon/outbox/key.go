package outbox

import (
	"regexp"
	"sync"
	"time"
)

// Key is a key of a target in a job file. The checks of package catalog, the JSON Schema and the table in
// docs/outbox.md are made from it.
type Key struct {
	Name     string
	Type     Type
	Help     string                  // what the key means, without a full stop at the end
	Default  string                  // the value of a missing key
	Required string                  // the hint for a target without this key; "" means that it is optional
	Hint     string                  // what a value can be; of a path and of a file it is an example
	Fixed    string                  // the hint for a value with references, where none are replaced
	Check    func(text string) error // returns why the key cannot have a text
	Pattern  Expression              // what a text must match, if there is no Check
	Words    []string                // the values of a WordKey
	Min, Max time.Duration           // the bounds of a DurationKey
	Either   string                  // the hint for a target with both the file and the variable of one secret
	Schema   string                  // further members of the JSON Schema

	// Names are the names in a MappingKey, Values the type of its values: texts, or where secrets are. MaxBytes bounds
	// all of them together; 0 means no bound.
	Names    *Names
	Values   Type
	MaxBytes int
}

// Names are the names that a mapping may have. Mappings that share them have each name once.
type Names struct {
	In        string // the mapping that messages name
	Pattern   Expression
	Hint      string
	Canonical func(string) string // returns the notation of a name; nil leaves names as they are
	Taken     []string            // the names that the daemon sets
	Schema    string              // excludes those in the JSON Schema
}

// Expression is a regular expression that is compiled when it is first used: most commands need none, and
// those with large bounds take milliseconds.
type Expression string

var compiled sync.Map // Expression to *regexp.Regexp

// compile panics if the expression is not valid.
func (e Expression) compile() *regexp.Regexp {
	known, _ := compiled.Load(e)
	expression, ok := known.(*regexp.Regexp)
	if !ok {
		expression = regexp.MustCompile(string(e))
		compiled.Store(e, expression)
	}
	return expression
}

// MatchString reports whether s matches.
func (e Expression) MatchString(s string) bool { return e.compile().MatchString(s) }

// FindString returns the text in s that matches, "" if there is none.
func (e Expression) FindString(s string) string { return e.compile().FindString(s) }

// Type is what kind of value a key has.
type Type string

// The types of keys. Only names, addresses and the values of mappings may have references.
const (
	TextKey       Type = "text"
	PathKey       Type = "path"     // a path from the root
	NameKey       Type = "name"     // the name of a file or an object at the target; each kind has one or none
	AddressKey    Type = "URL"      // the URL of a request; each kind has one or none
	WordKey       Type = "word"     // one of Words
	DurationKey   Type = "duration" // such as 30s
	SecretFileKey Type = "file"     // a file with a secret, from the root; its name ends in _file
	SecretEnvKey  Type = "variable" // an environment variable of the daemon with a secret; its name ends in _env
	MappingKey    Type = "mapping"  // names and values
)

// Settings are the values of the keys of a target, by the type of the key a string, a [time.Duration] or []Pair.
type Settings map[string]any

// Pair is a name and a value of a mapping.
type Pair struct{ Name, Value string }

// Text returns the text of a key, "" if it is missing.
func (s Settings) Text(key string) string { return setting[string](s, key) }

// Duration returns the time of a key, 0 if it is missing.
func (s Settings) Duration(key string) time.Duration { return setting[time.Duration](s, key) }

// Pairs returns the names and values of a key in their order.
func (s Settings) Pairs(key string) []Pair { return setting[[]Pair](s, key) }

func setting[T any](s Settings, key string) T {
	value, _ := s[key].(T)
	return value
}

// Source returns where a secret is, by the keys that have _file and _env at the end of their names.
func (s Settings) Source(secret string) Source {
	return Source{File: s.Text(secret + "_file"), Env: s.Text(secret + "_env")}
}

// Send is the part of an operation that is delivered.
type Send string

// The values of send.
const (
	SendResult Send = "result" // the footer of the stream: a JSON object
	SendRecord Send = "record" // everything known of the operation: a JSON object
	// SendLog is the log, SendArtifacts each file that the work left; only to targets with a NameKey.
	SendLog       Send = "log"
	SendArtifacts Send = "artifacts"
)

// The values of on, which selects the results that are delivered.
const (
	OnCompleted = "completed" // the operation is completed, also with a partial result
	OnEnded     = "ended"     // it has ended, in whatever way
)

// nameHelp ends the help of a NameKey.
const nameHelp = ", with `${id}`, `${params.X}` or `${result.X}`. Default: `${id}.json`, for a log `${id}.log`, for artifacts `${id}/${artifact}`"

const maxRetryFor = 365 * 24 * time.Hour

// SharedKeys are the keys that every kind has.
var SharedKeys = []Key{
	{
		Name: "send", Type: WordKey, Default: string(SendResult),
		Words: []string{string(SendResult), string(SendRecord), string(SendLog), string(SendArtifacts)},
		Help:  "`result`: the footer of the stream; `record`: the record; `log`: the log; `artifacts`: each file that the work left",
	},
	{
		Name: "on", Type: WordKey, Default: OnCompleted, Words: []string{OnCompleted, OnEnded},
		Help: "`completed`: also with a partial result; `ended`: in whatever way",
	},
	{
		Name: "retry_for", Type: DurationKey, Max: maxRetryFor, Hint: "leave the key out to try for ever",
		Help: "How long after the end it is tried, at most 8760h; then it waits for a person. Default: for ever",
	},
}
