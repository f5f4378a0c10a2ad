package work

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestLastItemLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text        string
		done, total int64
		ok          bool
	}{
		"the last of several":    {"[ 1 / 9 ] a\n[ 2 / 9 ] b\nOK\n", 2, 9, true},
		"without spaces":         {"[7/30]\n", 7, 30, true},
		"without a newline":      {"x\n[ 3 / 4 ] half", 3, 4, true},
		"not at the beginning":   {"see [ 1 / 2 ]\n", 0, 0, false},
		"another bracket after":  {"[ 5 / 6 ] x\n[warning] y\n", 5, 6, true},
		"nothing":                {"", 0, 0, false},
		"newlines only":          {"\n\n\n", 0, 0, false},
		"too many digits":        {"[ 1 / 1234567890123 ]\n", 0, 0, false},
		"cut off by the glance":  {" / 9 ] a\n", 0, 0, false},
		"one line without a end": {strings.Repeat("x", 4096), 0, 0, false},
	} {
		done, total, ok := lastItemLine([]byte(tc.text))
		if done != tc.done || total != tc.total || ok != tc.ok {
			t.Errorf("%s: %d %d %v", name, done, total, ok)
		}
	}
}

func TestLastProgress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 9\n2 9 b\n":    "2 9 b",
		"3 9\nnonsense\n": "3 9",
		"4 9\n5 9":        "4 9",
		"6 9":             "",
		"":                "",
		"\n\n":            "",
	} {
		if found, _ := lastProgress([]byte(text), ""); found.line != want {
			t.Errorf("%q: %+v", text, found)
		}
	}
	for text, want := range map[string]string{
		"1 9\n2 9 b\n":            "",
		"first\n3 9\nnext\n4 9\n": "first",
		"first\n2 9\nnext\n3 9\n": "next", // lines before the line taken were read before
		"3/9\n":                   "3/9",
		"3/9":                     "",
		`{"done": 3}`:             "",
		`{"total": 3}`:            `{"total": 3}`,
		`{"done": `:               "",
		"cut off\n" + strings.Repeat("1 2 xyz\n", tailBytes/8-1): "",
	} {
		if _, unknown := lastProgress([]byte(text), "2 9"); unknown != want {
			t.Errorf("%q: %q is unknown, want %q", text, unknown, want)
		}
	}
}

// A panic while a log is followed ends the run, not the daemon.
func TestPanicOfTheMonitor(t *testing.T) {
	t.Parallel()
	log, err := os.Open(os.DevNull)
	must(t, err)
	defer func() { must(t, log.Close()) }()
	ctx, cancel := context.WithCancelCause(t.Context())
	// without a definition there is no limit to compare the size with
	r := &Run{task: task{host: &Host{Logger: slog.New(slog.DiscardHandler)}}, ctx: ctx, cancel: cancel}
	m := &monitor{r: r, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), log: log}
	m.wake <- struct{}{}
	m.guard()
	<-m.ended
	if failed, ok := errors.AsType[*Error](r.EndCause()); !ok || failed.Code != panicCode {
		t.Errorf("the run ends by %v", r.EndCause())
	}
}
