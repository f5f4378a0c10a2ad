package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
)

func TestLanesOfTheFile(t *testing.T) {
	t.Parallel()
	l, err := loadText(t, `
lanes:
  cookie:
    capacity: 1
    max_starts: 30/1m
    gap: 1s
    env: {PROFILE: desktop, LEVEL: 3}
    breaker: {failures: 5, within: 10m, cooldown: 15m, on: [auth, exit_code]}
  nocookie: {capacity: 2, rotate: {USER_AGENT: [desktop, mobile, alt]}}
  wide:
limits: {yt-dlp: 1, disk: unlimited}
ageing: 90m
max_queued: 5
`, map[string]string{"JOBDIR_LANE_NOCOOKIE_CAPACITY": "3"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]lanes.LaneConfig{
		"default": {Lane: queue.Lane{Capacity: queue.Unlimited}},
		"cookie": {
			Lane: queue.Lane{Capacity: 1, Starts: 30, Per: time.Minute, Gap: time.Second},
			Env:  []string{"PROFILE=desktop", "LEVEL=3"},
			Breaker: &breaker.Settings{
				Failures: 5, Within: 10 * time.Minute, Cooldown: 15 * time.Minute,
				Codes: []string{"auth", "exit_code"},
			},
		},
		"nocookie": {Lane: queue.Lane{Capacity: 3}, Rotate: map[string][]string{"USER_AGENT": {"desktop", "mobile", "alt"}}},
		"wide":     {Lane: queue.Lane{Capacity: queue.Unlimited}},
	}
	if !reflect.DeepEqual(l.Queue.Lanes, want) {
		t.Errorf("lanes %+v", l.Queue.Lanes)
	}
	if !reflect.DeepEqual(l.Queue.Limits, map[string]int{"yt-dlp": 1, "disk": -1}) ||
		l.Queue.Ageing != 90*time.Minute || l.Queue.MaxQueued != 5 {
		t.Errorf("limits %v, ageing %s, max_queued %d", l.Queue.Limits, l.Queue.Ageing, l.Queue.MaxQueued)
	}
	var rows []string
	for _, row := range l.queueRows() {
		rows = append(rows, fmt.Sprint(row.Key, " = ", row.Value, " from ", strings.TrimPrefix(row.Origin, "file "+l.File)))
	}
	if got, want := strings.Join(rows, "\n"), `lanes.cookie.capacity = 1 from :4
lanes.cookie.max_starts = 30/1m from :5
lanes.cookie.gap = 1s from :6
lanes.cookie.env = PROFILE, LEVEL from :7
lanes.cookie.breaker = 5 failures within 10m, cooldown 15m, on auth, exit_code from :8
lanes.default.capacity = unlimited from default
lanes.nocookie.capacity = 3 from environment JOBDIR_LANE_NOCOOKIE_CAPACITY
lanes.nocookie.rotate = USER_AGENT (3 values) from :9
lanes.wide.capacity = unlimited from default
limits.disk = unlimited from :11
limits.yt-dlp = 1 from :11`; got != want {
		t.Errorf("shown as\n%s\nwant\n%s", got, want)
	}
}

func TestMistakesInLanes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ file, want string }{
		{"lanes: [cookie]\n", `jobdir.yaml:1:8: lanes: expected keys and values, as in "lanes: {cookie: {capacity: 1}}"`},
		{"lanes: {Cookie: {}}\n", `jobdir.yaml:1:9: "Cookie" cannot be the name of a lane`},
		{"lanes: {all: {}}\n", `and not "all"`},
		{"lanes: {a: {}, a: {}}\n", `mapping key "a" already defined`},
		{"lanes: {a: 1}\n", `a: expected keys and values, as in "a: {capacity: 1}"`},
		{
			"lanes:\n  a:\n    capasity: 1\n",
			`jobdir.yaml:3:5: unknown key "capasity"; the keys are capacity, max_starts, gap, env, rotate, breaker`,
		},
		{
			"lanes: {a: {capacity: -1}}\n",
			`jobdir.yaml:1:23: capacity "-1" is neither a whole number from 0 to 1000000 nor "unlimited"`,
		},
		{"lanes: {a: {capacity: many}}\n", `capacity "many" is neither`},
		{"lanes: {a: {capacity: [1, 2]}}\n", "expected one value, got 2"},
		{"lanes: {a: {max_starts: 30}}\n", `max_starts "30" is not a number of starts in a time, such as 30/1m`},
		{"lanes: {a: {max_starts: 0/1m}}\n", `max_starts "0/1m" is not`},
		{"lanes: {a: {max_starts: 3/soon}}\n", `max_starts "3/soon" is not`},
		{"lanes: {a: {gap: 0s}}\n", `"0s" is not a time above zero`},
		{"lanes: {a: {env: {1A: x}}}\n", `env: "1A" cannot be the name of a variable`},
		{"lanes: {a: {env: {JOBDIR_ID: x}}}\n", `env: "JOBDIR_ID" cannot be set`},
		{"lanes: {a: {rotate: {A: []}}}\n", "rotate: A has no values"},
		{"lanes: {a: {rotate: {A-B: [x]}}}\n", `rotate: "A-B" cannot be`},
		{"lanes: {a: {breaker: {failures: 5}}}\n", "breaker: it needs failures, within and cooldown"},
		{"lanes: {a: {breaker: {failures: 0, within: 1m, cooldown: 1m}}}\n", `failures: "0" is not a number from 1`},
		{"lanes: {a: {breaker: {failures: 1, within: soon, cooldown: 1m}}}\n", `within: "soon" is not a time`},
		{"lanes: {a: {breaker: {failures: 1, within: 1m, cooldown: 1m, on: []}}}\n", "on: expected one or more error codes"},
		{"lanes: {a: {breaker: {after: 1}}}\n", `unknown key "after"; the keys are failures, within, cooldown, on`},
		{"limits: {A: 1}\n", `"A" cannot be the name of a limit`},
		{"limits: {a: -1}\n", `a: capacity "-1" is neither`},
		{"limits: 3\n", "limits: expected keys and values"},
		{"max_queued: many\n", `max_queued: "many" is not a whole number`},
		{"ageing: soon\n", `ageing: "soon" is not a time`},
	} {
		_, err := loadText(t, test.file, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", test.file, err, test.want)
			continue
		}
		if got := exit.Code(err); got != exit.Usage {
			t.Errorf("%q: exit code %d", test.file, got)
		}
	}
}

func TestVariablesOfLanes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ file, name, value, want string }{
		{
			"lanes: {a-b: {}}\n", "JOBDIR_LANE_A_B_CAPACITY", "many",
			`environment variable JOBDIR_LANE_A_B_CAPACITY: capacity "many" is neither`,
		},
		{"lanes: {a-b: {}, a_b: {}}\n", "JOBDIR_LANE_A_B_CAPACITY", "1", "it is of the lane a-b and of the lane a_b"},
		{
			"lanes: {cookie: {}}\n", "JOBDIR_LANE_COKIE_CAPACITY", "1",
			`there is no lane "cokie" in the configuration; the lanes are cookie, default`,
		},
	} {
		_, err := loadText(t, test.file, map[string]string{test.name: test.value})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s=%s: %v, want %q", test.name, test.value, err, test.want)
		}
	}
	l, err := load(pflag.NewFlagSet("test", pflag.ContinueOnError),
		map[string]string{"HOME": "/home/x", "JOBDIR_LANE_DEFAULT_CAPACITY": "0"})
	if err != nil || l.Queue.Lanes["default"].Capacity != 0 {
		t.Errorf("%v %+v", err, l)
	}
}
