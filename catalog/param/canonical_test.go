package param

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

// anyJSON draws a JSON value, whose text has blanks and escapes where they may be.
func anyJSON(t *rapid.T, depth int) string {
	blank := func() string { return rapid.SampledFrom([]string{"", " ", "\n", "\t "}).Draw(t, "blank") }
	most := 6
	if depth == 0 {
		most = 4
	}
	var out string
	switch rapid.IntRange(0, most).Draw(t, "kind") {
	case 0:
		out = rapid.SampledFrom([]string{
			"null", "true", "false", "-0", "0.0", "1e21", "1E-7", "5e-324",
			"1.7976931348623157e308", "333333333.33333329", "9007199254740991", "-1.50",
		}).Draw(t, "word")
	case 1, 2:
		data, err := json.Marshal(rapid.Float64Range(-1e300, 1e300).Draw(t, "number"))
		if err != nil {
			t.Fatal(err)
		}
		out = string(data)
	case 3, 4:
		out = anyString(t)
	case 5:
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			parts = append(parts, anyJSON(t, depth-1))
		}
		out = "[" + blank() + strings.Join(parts, blank()+","+blank()) + "]"
	default:
		var parts []string
		seen := map[string]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "members") {
			name := anyString(t)
			var decoded string
			if err := json.Unmarshal([]byte(name), &decoded); err != nil || seen[decoded] {
				continue
			}
			seen[decoded] = true
			parts = append(parts, name+blank()+":"+anyJSON(t, depth-1))
		}
		out = "{" + strings.Join(parts, blank()+",") + blank() + "}"
	}
	return blank() + out + blank()
}

func anyString(t *rapid.T) string {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\/\b\n\x01\x1f\u007fäß€\u2028\ue000\ufb33\ufffd😀𐀀<>&")), 0,
		8, -1).Draw(t, "text")
	data, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "escaped") {
		data = []byte(strings.NewReplacer("a", `\u0061`, "/", `\/`, "😀", `\ud83d\uDE00`).Replace(string(data)))
	}
	return string(data)
}

// An implementation by others gives the same bytes.
func TestCanonicalIsThatOfOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := anyJSON(t, 4)
		got, err := Canonical([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want, err := jcs.Transform([]byte(`{"a":` + text + `}`)) // it takes no scalars
		if err != nil {
			t.Fatalf("%s: the other one: %v", text, err)
		}
		if `{"a":`+string(got)+`}` != string(want) {
			t.Fatalf("%q:\n%q, want\n%q", text, got, want)
		}
		again, err := Canonical(got)
		if err != nil || string(again) != string(got) {
			t.Fatalf("a second time: %q, %v", again, err)
		}
	})
}

func TestCanonicalRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if _, err := Canonical([]byte(deep(maxNesting))); err != nil {
		t.Errorf("as deep as it may be: %v", err)
	}
	for text, want := range map[string]string{
		``:                                     "it is cut off",
		`{"a":1`:                               "it is cut off",
		`[1,]`:                                 "it is no JSON",
		`{"a":1}}`:                             "text follows",
		"0\v":                                  "text follows",
		`1 2`:                                  "text follows",
		`{"a":{"b":1,"\u0062":2}}`:             "the name 'b' is given twice",
		`["\ud800"]`:                           "half a surrogate pair",
		`{"\udc00":1}`:                         "half a surrogate pair",
		"[\"\xff\"]":                           "not UTF-8",
		`[1e999]`:                              "too large a number",
		`[9007199254740993]`:                   "more digits than readers of JSON keep",
		`[-12345678901234567890]`:              "write it as a string",
		`[01]`:                                 "it is no JSON",
		deep(maxNesting + 1):                   "it nests deeper than 64 levels",
		deep(10_000):                           "it nests deeper than 64 levels",
		strings.Repeat(`{"a":`, 10_000):        "it nests deeper than 64 levels",
		`["` + strings.Repeat("[", 70):         "it is cut off", // brackets in a text are no nesting
		`["\"` + strings.Repeat("[", 70) + `"`: "it is cut off",
	} {
		if got, err := Canonical([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %.40q, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,-0.0,"\u20ac"],"a":null}`, `[[[]]]`, `"\ud83d\ude00"`,
		`1e400`, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Canonical(data)
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q gives %q, which is no JSON", data, got)
		}
		want, err := jcs.Transform([]byte(`{"a":` + string(data) + `}`))
		if err != nil || `{"a":`+string(got)+`}` != string(want) {
			t.Fatalf("%q gives %q, another implementation %q, %v", data, got, want, err)
		}
	})
}
