//go:build linux

package keeper

import (
	"os"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	tail := " S 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 100 200 300" + strings.Repeat(" 1", 25) + " 4242 0\n"
	for name, program := range map[string]string{
		"plain": "sh", "spaces": "a b", "parentheses": "a) R 1 (b",
		"newline": "a\nb",
	} {
		s, err := parseStat([]byte("12 (" + program + ")" + tail))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := (stat{
			state: 'S', parent: 7, group: 12, session: 12, flags: 4194560, start: 98765,
			envEnd: 4242,
		}); s != want {
			t.Errorf("%s: %+v, want %+v", name, s, want)
		}
	}
	for _, bad := range []string{"", "12 sh S 1", "12 (sh) S 1 2", "12 (sh)" + strings.Replace(tail, "7", "x", 1)} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, s)
		}
	}
}

func TestReadStatOfThisProcess(t *testing.T) {
	t.Parallel()
	s, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	tick, err := now()
	if err != nil {
		t.Fatal(err)
	}
	if s.parent != os.Getppid() || s.kernel() || s.zombie() || s.envEnd == 0 || s.start == 0 || s.start > tick {
		t.Errorf("%+v at %d", s, tick)
	}
}

func TestCarries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ string
		marks   []string
		want    bool
	}{
		"all":          {"P=1\x00A=1\x00B=2\x00", []string{"A=1", "B=2"}, true},
		"first":        {"A=1\x00", []string{"A=1"}, true},
		"twice":        {"A=0\x00A=1\x00", []string{"A=1"}, true},
		"one of two":   {"A=1\x00", []string{"A=1", "B=2"}, false},
		"longer":       {"A=11\x00", []string{"A=1"}, false},
		"longer name":  {"XA=1\x00", []string{"A=1"}, false},
		"in a value":   {"X=A=1\x00", []string{"A=1"}, false},
		"no marks":     {"A=1\x00", nil, false},
		"nothing":      {"", []string{"A=1"}, false},
		"not finished": {"B=2\x00A=1", []string{"A=1"}, true},
	} {
		if got := hasMarks([]byte(c.environ), c.marks); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
