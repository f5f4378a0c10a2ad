package stream

import "testing"

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		"plain name.txt":             "plain name.txt",
		`C:\new`:                     `C:\new`,
		"tab\tkept":                  "tab\tkept",
		"größe 名前":                   "größe 名前",
		"a'...\n  OK.":               `a'...\n  OK.`,
		"red\x1b[31m":                `red\x1b[31m`,
		"bad\xffbyte and \\ slash":   `bad\xffbyte and \\ slash`,
		"line\u2028end":              `line\u2028end`,
		"gpj.\u202eexe":              `gpj.\u202eexe`,
		"del\x7f":                    `del\x7f`,
		"both 名 and \r":              `both 名 and \r`,
		"\u0085":                     `\u0085`,
		"real replacement \ufffd ok": "real replacement \ufffd ok",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
