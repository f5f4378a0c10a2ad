package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/cli/exit"
)

// loadText reads a configuration from a file's text, variables and flags.
func loadText(t *testing.T, file string, env map[string]string, flags ...string) (*Loaded, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	set.String("config", "", "")
	AddFlags(set, true)
	AddFlags(set, false)
	if file != "" {
		path := filepath.Join(t.TempDir(), "jobdir.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--config", path)
	}
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"HOME": "/home/somebody"}
	maps.Copy(all, env)
	return load(set, all)
}

func TestEachSettingCanBeSetInEachWay(t *testing.T) {
	t.Parallel()
	values := map[string][2]string{ // two values, each different from the default
		"listen": {"127.0.0.1:1", "127.0.0.1:2"}, "storage": {"/a", "/b"}, "jobs": {"/a", "/b"},
		"durability": {"process", "power"}, "commit": {"journal", "files"}, "journal_segment": {"1MiB", "2MiB"},
		"grace": {"1s", "2s"}, "stall_after": {"5m0s", "1s"}, "on_stop": {"interrupt", "wait"},
		"sweep_interval": {"1s", "2s"}, "idempotency_age": {"1s", "2s"}, "token_file": {"/a", "/b"},
		"insecure": {"true", "false"},
		"hosts":    {"a", "b"}, "group_control": {"true", "false"}, "log_format": {"json", "text"},
		"log_level":     {"debug", "warn"},
		"retention_age": {"2d", "12h"}, "retention_failed_age": {"3d", "0"}, "retention_bytes": {"1GiB", "5B"},
		"retention_count": {"7", "8"},
		"events_age":      {"2d", "0"}, "events_bytes": {"1GiB", "5B"}, "crash_limit_burst": {"1", "100"},
		"crash_limit_within": {"1h", "5s"},
		"outbox_workers":     {"3", "40"}, "outbox_per_target": {"2", "9"},
		"webhook_allow": {"127.0.0.1", "10.0.0.0/8"}, "ageing": {"1h", "0"}, "max_queued": {"7", "0"},
	}
	for _, s := range settings {
		t.Run(s.key, func(t *testing.T) {
			t.Parallel()
			v, ok := values[s.key]
			if !ok {
				t.Fatalf("add values for %s to this test", s.key)
			}
			check := func(l *Loaded, err error, value, origin string) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(s.get(&l.Config), ","); got != value {
					t.Errorf("value %q, want %q", got, value)
				}
				if !strings.HasPrefix(l.origin[s.key], origin) {
					t.Errorf("origin %q, want %q", l.origin[s.key], origin)
				}
			}
			file := s.key + ": " + v[0] + "\n"
			if s.within != "" {
				file = s.within + ": {" + s.name() + ": " + v[0] + "}\n"
			}
			env := map[string]string{s.variable(): v[1]}
			l, err := loadText(t, file, nil)
			check(l, err, v[0], "file ")
			l, err = loadText(t, file, env)
			check(l, err, v[1], "environment "+s.variable())
			l, err = loadText(t, file, env, "--"+s.flag()+"="+v[0])
			check(l, err, v[0], "flag --"+s.flag())
		})
	}
}

func TestListsAndCommas(t *testing.T) {
	t.Parallel()
	l, err := loadText(t, "hosts:\n  - a\n  - \"b\"\n", map[string]string{"JOBDIR_LISTEN": "127.0.0.1:1, [::1]:2"}, "--jobs",
		"/x,/y", "--jobs", "/z")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.Access.Hosts, []string{"a", "b"}) || !slices.Equal(l.Listen, []string{"127.0.0.1:1", "[::1]:2"}) ||
		!slices.Equal(l.Jobs, []string{"/x", "/y", "/z"}) {
		t.Errorf("hosts %q, listen %q, jobs %q", l.Access.Hosts, l.Listen, l.Jobs)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	l, err := loadText(t, "# nothing\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.Work.Grace != 10*time.Second || l.Upkeep.SweepInterval != time.Minute || l.Storage != "/home/somebody/.local/state/jobdir" ||
		l.Explicit("storage") {
		t.Errorf("%+v", l.Config)
	}
}

func TestMistakesInTheFile(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, file, want string }{
		{"unknown key", "storage: a\nstorrage: b\n", `jobdir.yaml:2:1: unknown key "storrage"`},
		{"key twice", "grace: 1s\ngrace: 2s\n", "jobdir.yaml:2:1: "},
		{"no mapping", "- grace\n", "jobdir.yaml:1:1: expected keys and values"},
		{"a mapping as value", "grace:\n  seconds: 1\n", "jobdir.yaml:2:"},
		{"no value", "grace:\n", "jobdir.yaml:1:"},
		{"a list for one value", "grace: [1s, 2s]\n", "grace: expected one value, got 2"},
		{"an empty entry", "listen: ['']\n", "listen: an entry is empty"},
		{"no address", "listen: nowhere\n", `"nowhere" is neither HOST:PORT nor unix:/PATH`},
		{"a relative socket", "listen: unix:x.sock\n", "must be absolute"},
		{"a port too high", "listen: 127.0.0.1:65536\n", "no number from 0 to 65535"},
		{"broken YAML", "grace: [1s\n", "jobdir.yaml:1:"},
		{"two documents", "grace: 1s\n---\ngrace: 2s\n", "more than one document"},
		{"a time of zero", "grace: 0s\n", `"0s" is not a time above zero`},
		{"neither true nor false", "insecure: perhaps\n", `"perhaps" is neither true nor false`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadText(t, test.file, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q in it", err, test.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the message has more than one line: %q", err)
			}
			if got := exit.Code(err); got != exit.Usage {
				t.Errorf("exit code %d, want %d", got, exit.Usage)
			}
		})
	}
}
