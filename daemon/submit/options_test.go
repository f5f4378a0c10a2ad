package submit

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

const (
	parent = "media-fetch_2026-11-22_10-00-00_p7_r1"
	second = "media-fetch_2026-11-22_10-00-01_p7_r2"
)

func parseIDs(t *testing.T, texts ...string) []statefs.ID {
	t.Helper()
	var ids []statefs.ID
	for _, text := range texts {
		id, err := statefs.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// A URL and an equivalent JSON entry give the same options, or the same error.
func TestOptionsFromQueryAndEntry(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.FixedZone("", 3600))
	for name, c := range map[string]struct {
		query, entry string // entry: the members beside the job
		want         Options
		err          string
	}{
		"nothing":  {"", ``, Options{}, ""},
		"null":     {"", `"priority":null,"tags":null`, Options{}, ""},
		"priority": {"priority=-5", `"priority":-5`, Options{Priority: new(-5)}, ""},
		"delay":    {"delay=1h30m", `"delay":"1h30m"`, Options{Delay: 90 * time.Minute}, ""},
		"not before": {
			"not_before=2026-11-23T09:00:00%2B01:00", `"not_before":"2026-11-23T09:00:00+01:00"`,
			Options{NotBefore: &at},
			"",
		},
		"after": {"after=" + parent + "," + second + "&require=end", `"after":["` + parent + `","` + second +
			`"],"require":"end"`, Options{After: parseIDs(t, parent, second), Require: "end"}, ""},
		"after twice": {
			"after=" + parent + "&after=" + parent, `"after":["` + parent + `","` + parent + `"]`,
			Options{After: parseIDs(t, parent)},
			"",
		},
		"tags":              {"tags=a,b", `"tags":["a","b"]`, Options{Tags: []string{"a", "b"}}, ""},
		"key":               {"key=a%20b", `"key":"a b"`, Options{Key: new("a b")}, ""},
		"no key":            {"key=", `"key":""`, Options{Key: new("")}, ""},
		"priority text":     {"priority=high", `"priority":"high"`, Options{}, "priority"},
		"priority fraction": {"priority=1.5", `"priority":1.5`, Options{}, "'1.5' is not an integer"},
		"priority large": {
			"priority=1000001", `"priority":1000001`,
			Options{},
			"1000001 is beyond the priorities from -1000000 to 1000000",
		},
		"delay text":     {"delay=soon", `"delay":"soon"`, Options{}, "'soon' is not a duration"},
		"delay negative": {"delay=-5s", `"delay":"-5s"`, Options{}, "'-5s' is not a duration"},
		"delay long":     {"delay=4000d", `"delay":"4000d"`, Options{}, "it is longer than 3650d"},
		"time":           {"not_before=tomorrow", `"not_before":"tomorrow"`, Options{}, "'tomorrow' is not a time"},
		"year": {
			"not_before=1999-01-01T00:00:00Z", `"not_before":"1999-01-01T00:00:00Z"`,
			Options{},
			"the year 1999",
		},
		"both times": {
			"not_before=2026-11-23T09:00:00Z&delay=1s", `"not_before":"2026-11-23T09:00:00Z","delay":"1s"`,
			Options{},
			"give it or 'delay'",
		},
		"after no ID": {"after=../x", `"after":["../x"]`, Options{}, "'../x' is not the ID of an operation"},
		"require word": {
			"require=luck&after=" + parent, `"require":"luck","after":["` + parent + `"]`,
			Options{},
			"'luck' is not one of success, end",
		},
		"require alone": {"require=end", `"require":"end"`, Options{}, "only with 'after'"},
		"tag space":     {"tags=a%20b", `"tags":["a b"]`, Options{}, "'a b' has a space"},
		"tag long": {
			"tags=" + strings.Repeat("a", 65), `"tags":["` + strings.Repeat("a", 65) + `"]`,
			Options{},
			"longer than 64 characters",
		},
		"tags many": {
			"tags=" + strings.Repeat("a,", 33), `"tags":["a"` + strings.Repeat(`,"a"`, 32) + `]`,
			Options{},
			"more than 32",
		},
		"key long": {
			"key=" + strings.Repeat("k", 513), `"key":"` + strings.Repeat("k", 513) + `"`,
			Options{},
			"longer than 512 bytes",
		},
		"key control": {"key=a%0Ab", `"key":"a\nb"`, Options{}, "a control character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, err := url.ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			o, err := FromQuery(values)
			compare(t, "query", o, c.want, err, c.err)
			members := `{"job":"media/fetch"`
			if c.entry != "" {
				members += "," + c.entry
			}
			e, err := ParseEntry([]byte(members + "}"))
			compare(t, "entry", e.Options, c.want, err, c.err)
		})
	}
}

func compare(t *testing.T, what string, got, want Options, err error, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v, want %q", what, err, wantErr)
		}
		return
	}
	if got.NotBefore != nil && want.NotBefore != nil && got.NotBefore.Equal(*want.NotBefore) {
		got.NotBefore = want.NotBefore
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v (%v), want %+v", what, got, err, want)
	}
}

func TestOptionsOnceInAQuery(t *testing.T) {
	t.Parallel()
	if _, err := FromQuery(url.Values{"key": {"a", "b"}}); err == nil ||
		!strings.Contains(err.Error(), "'key': it is given 2 times") {
		t.Errorf("a key that is given twice: %v", err)
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                   `'job': it is missing; write "job": "group/name"`,
		`[]`:                                 "not a JSON object",
		`{"job":"media/fetch"`:               "it is cut off",
		`{"job":"media/fetch"} {}`:           "text follows it",
		`{"job":"media/fetch","job":"a/b"}`:  "'job': it is given twice",
		`{"job":"fetch"}`:                    "'fetch' is not the address of a job",
		`{"job":7}`:                          "'7' is not a text",
		`{"job":"media/fetch","prams":{}}`:   "'prams': there is no such member; known are job, params, priority",
		`{"job":"media/fetch","tags":"a"}`:   `'tags': '"a"' is not a list of texts`,
		`{"job":"a/b","idempotency_key":""}`: "'idempotency_key': it is empty",
		`{"job":"a/b","idempotency_key":"\u0000"}`: "control character",
	} {
		if e, err := ParseEntry([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, e, err, want)
		}
	}
}

const fetch = `
group: media
name: fetch
params:
  who: {type: string}
tags: [video]
lane: cookie
limits: [yt-dlp]
key: ${params.who}
key_order: priority
priority: 3
on_disconnect: pause
run: [fetch]
`

func TestBuild(t *testing.T) {
	t.Parallel()
	defs, err := catalog.Parse("f.yaml", []byte(fetch))
	if err != nil {
		t.Fatal(err)
	}
	def, now := defs[0], time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	params, err := def.BindJSON([]byte(`{"who":"me"}`))
	if err != nil {
		t.Fatal(err)
	}
	plain := statefs.Submission{
		Group: "media", Job: "fetch", Params: params.JSON(), CanonicalParams: `{"who":"me"}`, Tags: []string{"video"},
		Definition: def.Source(), DefinitionHash: def.Hash(),
		OnDisconnect: "pause", Lane: "cookie", Limits: []string{"yt-dlp"}, Key: "me", KeyOrder: "priority", Priority: 3,
	}
	other := plain
	later := now.Add(time.Minute)
	other.Tags, other.Key, other.KeyOrder, other.Priority, other.NotBefore = []string{"video", "b"}, "", "", 0, &later
	other.After, other.Require, other.IdempotencyKey = parseIDs(t, parent), statefs.RequireSuccess, "i"
	for name, c := range map[string]struct {
		options Options
		want    statefs.Submission
	}{
		"the job's": {Options{}, plain},
		"its own": {Options{
			Tags: []string{"b", "video"}, Key: new(""), Priority: new(0), Delay: time.Minute,
			After: parseIDs(t, parent), IdempotencyKey: "i",
		}, other},
	} {
		if got, err := Build(def, params, c.options, now); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v (%v), want\n%+v", name, got, err, c.want)
		}
	}
	if params, err = def.BindJSON([]byte(`{"who":"` + strings.Repeat("w", 600) + `"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(def, params, Options{}, now); err == nil ||
		!strings.Contains(err.Error(), "longer than 512 bytes") {
		t.Errorf("a key that is too long: %v", err)
	}
}
