package submit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

func TestParseList(t *testing.T) {
	t.Parallel()
	entries, err := ParseList([]byte(` [{"job":"g/a","params":{"x":1}}, {"job":"g/b","priority":2}] `))
	if err != nil || len(entries) != 2 || entries[0].Job != "a" || string(entries[0].Params) != `{"x":1}` ||
		*entries[1].Options.Priority != 2 {
		t.Errorf("%+v, %v", entries, err)
	}
	one := `{"job":"g/a"}`
	if entries, err = ParseList([]byte("[" + strings.Repeat(one+",", MaxEntries-1) + one + "]")); err != nil ||
		len(entries) != MaxEntries {
		t.Errorf("the longest list: %d, %v", len(entries), err)
	}
	for text, want := range map[string]string{
		`[]`:                         "it is empty",
		`[` + one:                    "it is cut off",
		`[` + one + `,]`:             "invalid character",
		`[` + one + `] 1`:            "text follows it",
		`[` + one + `,7]`:            "entry 1: the parameters are not a JSON object",
		`[` + one + `,{"job":"g"}]`:  "entry 1: Invalid parameter 'job'",
		`[` + one + `,{"jobb":"g"}]`: "entry 1: Invalid parameter 'jobb'",
		`[{"job":"g/a","params":` + strings.Repeat("[", 10_000) + `]`: "exceeded max depth",
		`[{"job":"g/a","params":{"a":"` + strings.Repeat("x", MaxEntry) +
			`"}}]`: "entry 0: the list of submits cannot be taken: it has 1048607 bytes, and an entry has at most 1048576",
		"[" + strings.Repeat(one+",", MaxEntries) + one +
			"]": "it has 10001 entries, and at most 10000 are taken at once",
	} {
		if entries, err := ParseList([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %d entries, %v, want %q", text, len(entries), err, want)
		}
	}
	for text, want := range map[string]bool{"\n [": true, "{": false, "": false, "1[": false} {
		if IsList([]byte(text)) != want {
			t.Errorf("%q is a list: %t", text, !want)
		}
	}
}

func TestRequestsOfEntries(t *testing.T) {
	t.Parallel()
	c := catalog.New(catalog.Options{Extra: []catalog.Source{{Name: "jobs.yaml", YAML: []byte(jobs)}}})
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"job":"g/return","params":{"b":3}}`:           "",
		`{"job":"g/no"}`:                                "There is no job no in group g",
		`{"job":"no/return"}`:                           "There is no group no",
		`{"job":"a\nb/../return"}`:                      `There is no group a\nb`,
		`{"job":"g/return","params":{"b":"x"}}`:         `parameter 'b': "x" is a text, not an integer`,
		`{"job":"g/return","params":[]}`:                "the parameters are not a JSON object",
		`{"job":"g/return","params":{"a":"1","a":"2"}}`: "parameter 'a': it is given twice",
	} {
		entry, err := ParseEntry([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		requests, err := Requests(c, []Entry{entry})
		if want == "" {
			if err != nil || requests[0].Definition.Name != "return" || string(requests[0].Params.JSON()) != `{"b":3}` {
				t.Errorf("%s: %+v, %v", text, requests, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if _, err := Requests(c, []Entry{{Group: "g", Job: "return"}, entry}); err == nil {
			t.Errorf("%s: taken in a list", text)
		} else if wrong, ok := errors.AsType[*EntryError](err); !ok || wrong.Index != 1 {
			t.Errorf("%s in a list: %v", text, err)
		}
	}
}

// An arbitrary file parses either to entries that can be built, or to an error that describes the input.
func FuzzParseList(f *testing.F) {
	for _, seed := range []string{
		`[{"job":"g/return","params":{"a":"x","b":1},"priority":1,"delay":"1s","tags":["t"],"key":"k","idempotency_key":"i"}]`, `{"job":"g/by"}`,
		`[{"job":"g/next","after":["` + parent + `"],"require":"end","not_before":"2026-11-23T09:00:00Z"}]`,
		`[{"job":"a/b","params":[]}]`, `[[]]`, `{"job":1}`,
	} {
		f.Add([]byte(seed))
	}
	c := catalog.New(catalog.Options{Extra: []catalog.Source{{Name: "jobs.yaml", YAML: []byte(jobs)}}})
	if err := c.Reload(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseList(data)
		if err != nil {
			if one, oneErr := ParseEntry(data); oneErr == nil {
				entries, err = []Entry{one}, nil
			}
		}
		var requests []Request
		if err == nil {
			requests, err = Requests(c, entries)
		}
		for _, r := range requests {
			if err == nil {
				_, err = Build(r.Definition, r.Params, r.Options, time.Unix(0, 0))
			}
		}
		if err != nil && (!Refused(err) || err.Error() == "") {
			t.Errorf("%q: %v", data, err)
		}
	})
}
