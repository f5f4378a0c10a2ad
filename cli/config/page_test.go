package config

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/settings.md from the table of settings")

// TestSettingsPage compares docs/settings.md with the table of settings, from which it is generated.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	const page = "../../docs/settings.md"
	want := settingsPage()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/settings.md differs from the table of settings: run make generate (%v)", err)
	}
}

const settingsIntroduction = `# Settings

Give a setting as a flag of 'jobdir serve', as a variable of the environment, or as a key of
'jobdir.yaml'. A flag precedes a variable, and a variable precedes the file. 'retention.age' is the key
'age' in the mapping 'retention'. 'jobdir config' prints the values in effect and their origin. 'lanes'
and 'limits' are in the file only: see [The queue](queue.md).

| key in the file | flag | variable | default | meaning |
|---|---|---|---|---|
`

func settingsPage() string {
	var page strings.Builder
	page.WriteString("<!-- Generated from cli/config/table.go by \"make generate\"; do not edit. -->\n\n" +
		strings.ReplaceAll(settingsIntroduction, "'", "`"))
	defaults := defaults(nil)
	defaults.Storage = "$STATE_DIRECTORY, or ~/.local/state/jobdir"
	for _, s := range settings {
		key, preset := s.key, strings.Join(s.get(&defaults), ", ")
		if s.within != "" {
			key = s.within + "." + s.name()
		}
		fmt.Fprintf(&page, "| `%s` | `--%s` | `%s` | %s | %s |\n", key, s.flag(), s.variable(), cmp.Or(preset, "none"), s.usage)
	}
	return page.String()
}
