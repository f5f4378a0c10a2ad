package statefs

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestStampsOfFiles(t *testing.T) {
	t.Parallel()
	modified := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		name, content string
		at            time.Time
		args          string
		odd           bool
	}{
		{"touch", "", modified, "", false},
		{"echo", "\n", modified, "", false},
		{"text", "please\n", modified, "", true},
		{"zero bytes", strings.Repeat("\x00", 300), modified, "", true},
		{"a time without offset", "2025-11-26T13:07:00.123456\n", modified, "", true},
		{"ours", "2025-11-26T13:07:00.123456+01:00\n", testTime, "", false},
		{"no line end", "2025-11-26T13:07:00.123456+01:00", testTime, "", false},
		{"UTC", "2025-11-26T12:07:00.123456Z\r\n", testTime, "", false},
		{"arguments", "2025-11-26T13:07:00.123456+01:00\n{\"a\":1}\n", testTime, `{"a":1}`, false},
		{"a third line", "2025-11-26T13:07:00.123456+01:00\n {\"a\":1} \nmore\n", testTime, `{"a":1}`, false},
		{"torn arguments", "2025-11-26T13:07:00.123456+01:00\n{\"a\":", testTime, "", true},
		{"no object", "2025-11-26T13:07:00.123456+01:00\n[1]\n", testTime, "", true},
		{"arguments over lines", "2025-11-26T13:07:00.123456+01:00\n{\"a\":\n 1}\n", testTime, `{"a":1}`, false},
		{"arguments behind an empty line", "\n{\"a\":1}\n", modified, `{"a":1}`, false},
		{"arguments without a time", "{\"a\":1}\n", modified, `{"a":1}`, false},
	} {
		stamp := parseStamp([]byte(test.content), modified)
		if !stamp.At.Equal(test.at) || string(stamp.Args) != test.args || stamp.Malformed != test.odd {
			t.Errorf("%s is read as %s %s, odd %t", test.name, stamp.At, stamp.Args, stamp.Malformed)
		}
	}
	for _, args := range []string{"", `{"a":1}`} {
		stamp := parseStamp(formatStamp(testTime, json.RawMessage(args)), modified)
		if !stamp.At.Equal(testTime) || string(stamp.Args) != args {
			t.Errorf("what we write is read as %+v", stamp)
		}
	}
}

// TestLastRequestedTime: the last request wins, also one repeated by a touch, and a time in the
// future must not win over later requests.
func TestLastRequestedTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hour := now.Add(-time.Hour)
	for name, test := range map[string]struct{ at, modified, want time.Time }{
		"as it should be":                  {hour, hour, hour},
		"finer than the clock of the file": {hour.Add(4 * time.Millisecond), hour, hour.Add(4 * time.Millisecond)},
		"touched since it was written":     {hour, now, now},
		"later than the file":              {hour.Add(time.Minute), hour, hour},
		"still to come":                    {now.AddDate(70, 0, 0), hour, hour},
		"a second ahead":                   {now.Add(time.Second), now, now},
		"a file of the next year":          {now.AddDate(1, 0, 0), now.AddDate(1, 0, 0), now},
	} {
		if got := (Stamp{At: test.at}).lastRequested(test.modified, now); !got.At.Equal(test.want) {
			t.Errorf("%s: it counts as of %s, want %s", name, got.At, test.want)
		}
	}
}

func TestNamespaceOfAMarker(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		``:                                     "",
		`{"pid_namespace":"pid:[4026531836]"}`: "pid:[4026531836]",
		`{"pid_namespace":7}`:                  "",
		`{"other":"x"}`:                        "",
	} {
		if got := (Stamp{Args: json.RawMessage(args)}).pidNamespace(); got != want {
			t.Errorf("%s says %q, want %q", args, got, want)
		}
	}
}
