package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Texts and tags are found as strings.ToLower and a list of tags would find them, with any letters.
func TestTextsAndTagsAreFound(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"a", "A", "b", "ab", "K", "K", "İ", "ä", "Ä", "\xff", ",", "]", "[", `"`,
		`\`, "<", "", "video",
	})
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0,
			6).Draw(t, "pieces"), "")
	})
	rapid.Check(t, func(t *rapid.T) {
		in, what := text.Draw(t, "in"), text.Draw(t, "what")
		f := (&Query{Text: what}).filter()
		if got, want := f.matchesText(&parsedRow{params: []byte(in)}), bytes.Contains(bytes.ToLower([]byte(in)),
			[]byte(strings.ToLower(what))); got != want {
			t.Fatalf("%q in %q: %v", what, in, got)
		}
		tags := rapid.SliceOf(text).Draw(t, "tags")
		data, err := json.Marshal(tags)
		if err != nil {
			t.Fatal(err)
		}
		var read []string
		if err := json.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		f = (&Query{Tag: what}).filter()
		r := parsedRow{tags: data}
		if got, want := r.tagged(what, f.tag), slices.Contains(read, what); got != want {
			t.Fatalf("the tag %q among %s: %v", what, data, got)
		}
	})
}
