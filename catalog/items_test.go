package catalog

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/catalog/param"
)

// collect gives the names of all items, or the error that ended the list.
func collect(tb testing.TB, it *Items, dir string, v Values) (names []string, err error) {
	tb.Helper()
	for item, err := range it.List(tb.Context(), dir, v) {
		if err != nil {
			return names, err
		}
		names = append(names, item.Name)
	}
	return names, nil
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		tb.Fatal(err)
	}
}

func TestRange(t *testing.T) {
	t.Parallel()
	d := job(t, "run: [x]\nparams: {n: {type: integer, default: 3}}\nitems: {range: [1, \"${params.n}\"]}\n")
	for given, want := range map[string]string{"": "1 2 3", "1": "1", "0": "", "-5": ""} {
		values := url.Values{}
		if given != "" {
			values.Set("n", given)
		}
		p, err := d.Bind(values)
		if err != nil {
			t.Fatal(err)
		}
		names, err := collect(t, d.Items, "", Values{Params: p})
		if got := strings.Join(names, " "); err != nil || got != want || *d.Total(p) != int64(len(names)) {
			t.Errorf("n=%s: %q, total %d, %v", given, got, *d.Total(p), err)
		}
	}
	if _, err := collect(t, d.Items, "", Values{}); err == nil || d.Total(Params{}) != nil {
		t.Errorf("a range without its parameter: %v", err)
	}
}

func TestLongRangeIsLazyAndCancelled(t *testing.T) {
	t.Parallel()
	d := job(t, "run: [x]\nitems: {range: [-9007199254740991, 9007199254740991]}\n")
	if n := *d.Total(Params{}); n != 2*param.MaxInteger+1 {
		t.Errorf("total %d", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	count := 0
	for item, err := range d.Items.List(ctx, "", Values{}) {
		if count++; count == 1000 {
			cancel()
		} else if count > 1000 {
			if !errors.Is(err, context.Canceled) || item.Name != "" {
				t.Errorf("after the end: %+v, %v", item, err)
			}
		}
	}
	if count != 1001 {
		t.Errorf("%d items", count)
	}
}

func TestListFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	it := &Items{ListFile: "list"}
	for _, c := range []struct{ name, text, want, err string }{
		{"plain", "a\nb\n", "a|b", ""},
		{"no last line feed", "a\nb", "a|b", ""},
		{"CRLF and empty lines", "\ufeffa\r\n\r\n\n b # c\r\n", "a| b # c", ""},
		{"empty", "", "", ""},
		{"longest", strings.Repeat("x", MaxLine) + "\r\ny\n", strings.Repeat("x", MaxLine) + "|y", ""},
		{"too long", "a\n" + strings.Repeat("x", MaxLine+1) + "\n", "a", "line 2 is longer than 1MiB"},
		{"far too long", strings.Repeat("x", 2*MaxLine), "", "line 1 is longer than 1MiB"},
		{"NUL", "a\nb\x00\n", "a", "line 2 has a NUL character"},
	} {
		write(t, filepath.Join(dir, "list"), c.text)
		names, err := collect(t, it, dir, Values{})
		if got := strings.Join(names, "|"); got != c.want || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %.80q, %v", c.name, got, err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "missing", "."} {
		if _, err := collect(t, &Items{ListFile: name}, dir, Values{}); err == nil ||
			!strings.Contains(err.Error(), "read item list") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tree makes a folder with everything a glob can meet.
func tree(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range []string{
		"a.txt", "b.md", "-rf", ".hidden.txt", "sub/c.txt", "sub/deep/d.txt", "sub/deep/e.md",
		".git/config.txt", "sub/.cache/f.txt", "photos [2024]/p.txt", "photos 2/q.txt", "bad\xff/g.txt",
	} {
		write(tb, filepath.Join(dir, name), name)
	}
	for link, target := range map[string]string{"linked": "sub", "link.txt": "a.txt", "loop": "."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.txt"), 0o640); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func TestGlob(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	for pattern, want := range map[string]string{
		"*.txt":                ".hidden.txt|a.txt",
		"./-*":                 "./-rf",
		"a.txt":                "a.txt",
		"nothing*":             "",
		"*/*.txt":              "bad\xff/g.txt|photos 2/q.txt|photos [2024]/p.txt|sub/c.txt",
		"sub/**":               "sub/c.txt|sub/deep/d.txt|sub/deep/e.md",
		"sub//./**/*.md":       "sub/deep/e.md",
		"**/*.md":              "b.md|sub/deep/e.md",
		"**/deep/*":            "sub/deep/d.txt|sub/deep/e.md",
		".git/*":               ".git/config.txt",
		".*/*":                 ".git/config.txt",
		"**/.cache/**":         "sub/.cache/f.txt",
		"{a,b}.{txt,md}":       "a.txt|b.md",
		"{sub/deep,sub}/*.txt": "sub/c.txt|sub/deep/d.txt",
		"s?b/[c-d].txt":        "sub/c.txt",
		"linked/*.txt":         "linked/c.txt",
		"link*/*.txt":          "",
		`photos \[2024\]/*`:    "photos [2024]/p.txt",
		"fifo.txt":             "",
	} {
		names, err := collect(t, &Items{Glob: pattern}, dir, Values{})
		if got := strings.Join(names, "|"); err != nil || got != want {
			t.Errorf("%s gives %q, %v\nwant %q", pattern, got, err, want)
		}
	}
	for item, err := range (&Items{Glob: dir + "/sub/*.txt"}).List(t.Context(), "/elsewhere", Values{}) {
		if want := filepath.Join(dir, "sub/c.txt"); err != nil || item.Name != want || item.Path != want || item.Size != 9 {
			t.Errorf("absolute: %+v, %v", item, err)
		}
	}
	for item, err := range (&Items{Glob: "../" + filepath.Base(dir) + "/a.txt"}).List(t.Context(), dir, Values{}) {
		if err != nil || item.Path != filepath.Join(dir, "a.txt") || item.Name != "../"+filepath.Base(dir)+"/a.txt" {
			t.Errorf("parent: %+v, %v", item, err)
		}
	}
}

func TestGlobErrors(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	for pattern, want := range map[string]string{
		"missing/*":                    "no such file",
		"a.txt/*":                      "not a directory",
		"*/../*":                       "has .. after a wildcard",
		"[":                            "not a valid pattern",
		strings.Repeat("{a,b,c,d}", 6): "more than 1024 alternatives",
		"${item}/**":                   "has an empty value for ${item}",
	} {
		if names, err := collect(t, &Items{Glob: pattern}, dir, Values{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", pattern, names, err)
		}
	}
}

func TestGlobValues(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	for _, c := range []struct{ pattern, value, want string }{
		{"${item}/**", "photos [2024]", "photos [2024]/p.txt"},
		{"${item}/**", "photos [0-9]", "photos 2/q.txt"},
		{"${item}", "**/*.md", "b.md|sub/deep/e.md"},
		{"photos ${item}/*", "[2024]", "photos [2024]/p.txt"},
		{"photos ${item}4]/*", "[202", "photos [2024]/p.txt"},
	} {
		names, err := collect(t, &Items{Glob: c.pattern}, dir, Values{Item: c.value})
		if got := strings.Join(names, "|"); err != nil || got != c.want {
			t.Errorf("%s with %s gives %q, %v", c.pattern, c.value, got, err)
		}
	}
}

func TestListStopsWhenTheReaderStops(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	write(t, filepath.Join(dir, "list"), "a\nb\nc\n")
	for _, it := range []*Items{
		{Glob: "**"},
		{ListFile: "list"},
		{Range: &Range{First: Bound{Number: 1}, Last: Bound{Number: 9}}},
	} {
		var names []string
		for item, err := range it.List(t.Context(), dir, Values{}) {
			if err != nil {
				t.Errorf("%+v: %v", it, err)
			}
			names = append(names, item.Name)
			if len(names) == 2 {
				break
			}
		}
		if len(names) != 2 || slices.Contains(names, "") {
			t.Errorf("%+v: %q", it, names)
		}
	}
}

func TestGlobFromTheWorkingDirectory(t *testing.T) {
	t.Chdir(tree(t))
	for item, err := range (&Items{Glob: "sub/*.txt"}).List(t.Context(), "", Values{}) {
		if err != nil || item.Name != "sub/c.txt" || item.Path != "sub/c.txt" {
			t.Errorf("below: %+v, %v", item, err)
		}
	}
	for pattern, want := range map[string]string{
		"a.*": "a.txt", "./a.*": "./a.txt", "./sub/c*": "./sub/c.txt",
		"**/c.txt": "sub/c.txt",
	} {
		if names, err := collect(t, &Items{Glob: pattern}, "", Values{}); err != nil || strings.Join(names, "|") != want {
			t.Errorf("%s gives %q, %v", pattern, names, err)
		}
	}
	for item, err := range (&Items{Glob: "/proc/sys/kernel/osrelease"}).List(t.Context(), "", Values{}) {
		if err != nil || item.Name != item.Path {
			t.Errorf("absolute: %+v, %v", item, err)
		}
	}
	names, err := collect(t, &Items{Glob: "/nothing-of-this-name*"}, "", Values{})
	if err != nil || len(names) != 0 {
		t.Errorf("root: %q, %v", names, err)
	}
}
