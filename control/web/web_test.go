package web_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/control/web"
)

// The files of the page do nothing that the policy forbids, are short, and refer only to existing files.
func TestFilesOfThePage(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	forbidden := []struct {
		pattern *regexp.Regexp
		why     string
	}{
		{regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|createContextualFragment`), "text becomes markup; put it in with textContent"},
		{regexp.MustCompile(`\beval\(|new Function|setTimeout\(['"]|javascript:`), "text becomes code"},
		{regexp.MustCompile(`(?i)<[a-z][^>]*\s(on[a-z]+|style)=`), "the policy lets nothing inline count"},
		{regexp.MustCompile(`<style|<script[^>]*>[^<]`), "the policy lets nothing inline count"},
		{regexp.MustCompile(`https?://|url\(`), "the page loads nothing from elsewhere"},
		{regexp.MustCompile(`setInterval\(.*(get|post|call|open)\(`), "nothing is asked for by the clock"},
	}
	names := regexp.MustCompile(`(?:from|import) '\./([^']+)'|(?:src|href)="([\w.-]+\.\w+)"`)
	named := map[string]bool{web.Index: true}
	for _, entry := range entries {
		file, ok := web.Open(entry.Name())
		if !ok {
			t.Errorf("%s cannot be opened", entry.Name())
			continue
		}
		text := string(file.Data)
		if lines := strings.Count(text, "\n"); lines > 300 {
			t.Errorf("%s has %d lines, more than 300: split it by its nouns", entry.Name(), lines)
		}
		for _, f := range forbidden {
			if at := f.pattern.FindString(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")); at != "" {
				t.Errorf("%s says %q: %s", entry.Name(), at, f.why)
			}
		}
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			name := m[1] + m[2]
			named[name] = true
			if _, ok := web.Open(name); !ok && name != web.Buttons {
				t.Errorf("%s names %s, which is not there", entry.Name(), name)
			}
		}
		if path.Ext(entry.Name()) == ".js" && !strings.HasPrefix(text, "// ") {
			t.Errorf("%s does not begin with what it is for", entry.Name())
		}
	}
	for _, entry := range entries {
		if !named[entry.Name()] {
			t.Errorf("nothing names %s", entry.Name())
		}
	}
	for _, name := range []string{"", ".", "..", "../web.go", "nothing.js", "page/app.js"} {
		if _, ok := web.Open(name); ok {
			t.Errorf("%q can be opened", name)
		}
	}
}
