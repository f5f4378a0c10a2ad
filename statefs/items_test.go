package statefs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestItemResults: item results are read line by line, whatever a crash left at their end, and
// later appends begin on a new line.
func TestItemResults(t *testing.T) {
	t.Parallel()
	long := `{"item":2,"name":"` + strings.Repeat("x", 200_000) + `"}`
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"none":              {"", nil},
		"whole":             {"{\"item\":1}\n{\"item\":2}\n", []string{`{"item":1}`, `{"item":2}`}},
		"torn":              {"{\"item\":1}\n{\"item\":2,\"na", []string{`{"item":1}`}},
		"torn at the start": {"{\"ite", nil},
		"torn after a block": {
			"{\"item\":1}\n" + strings.Repeat("y", 10_000), []string{`{"item":1}`},
		},
		"longer than a block": {long + "\n{\"item\":3}\n", []string{long, `{"item":3}`}},
		"zeros of a power cut": {
			"{\"item\":1}\n" + strings.Repeat("\x00", 9000), []string{`{"item":1}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := openTree(t, t.TempDir(), Options{Durability: Process})
			o, err := Own(tree)
			check(t, err)
			defer func() { check(t, o.Release()) }()
			rec := submit(t, tree)
			if test.content != "" {
				check(t, os.WriteFile(tree.ItemsPath(rec.ID), []byte(test.content), 0o640))
			}
			read := func() (lines []string) {
				check(t, tree.ReadItems(rec.ID, "", func(line []byte) error {
					lines = append(lines, string(line))
					return nil
				}))
				return lines
			}
			if got := read(); !slices.Equal(got, test.want) {
				t.Errorf("%d lines, want %d", len(got), len(test.want))
			}
			f, err := o.Output.AppendItems(rec.ID, "")
			check(t, err)
			_, err = f.WriteString("{\"item\":9}\n")
			check(t, err)
			check(t, f.Close())
			if got, want := read(), append(slices.Clone(test.want), `{"item":9}`); !slices.Equal(got, want) {
				t.Errorf("after appending: %d lines, want %d", len(got), len(want))
			}
		})
	}
}
