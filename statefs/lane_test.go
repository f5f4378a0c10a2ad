package statefs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestNamesOfLaneFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"cookie.paused": true, "cookie.closed": true, "cookie.capacity": true, "a-b_c.paused": true,
		"all.paused": true, "all.closed": true,
		"all.capacity": true, "cookie": false, "cookie.": false, ".paused": false, "Cookie.paused": false,
		"cookie.paused.bak": false,
		"cookie.rotation":   false, "../x.paused": false, "-a.paused": false, strings.Repeat("a", 64) + ".paused": false,
	} {
		f, ok := ParseLaneFile(name)
		if ok != want || ok && f.String() != name {
			t.Errorf("%q: %v %t, want %t", name, f, ok, want)
		}
	}
}

func TestWhatLaneFilesSay(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{})
	until := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		file, text string
		hold       LaneHold
		capacity   int
		whole      bool
		problem    string
	}{
		{"a.paused", "", LaneHold{}, 0, false, ""},
		{"a.paused", "\n", LaneHold{}, 0, true, ""},
		{
			"a.closed", `{"until":"2026-11-23T10:00:00+01:00","reason":"new cookies","by":"ann"}` + "\n",
			LaneHold{Until: &until, Reason: "new cookies", By: "ann"},
			0, true, "",
		},
		{
			"a.paused", "the account\x1b[2J is \xff locked\nsecond line\n",
			LaneHold{Reason: "the account [2J is ? locked second line"},
			0, true, "",
		},
		{"a.paused", `{"until":"soon"}`, LaneHold{}, 0, false, `until: "soon" is not a time like "2026`},
		{"a.paused", `{"until":5}`, LaneHold{}, 0, false, `until: 5 is not a time like "2026`},
		{"a.paused", `{"reason":[1]}`, LaneHold{}, 0, false, `reason: [1] is not a text`},
		{"a.paused", `{"reason":"a","reason":"b"}`, LaneHold{}, 0, false, `"reason" is given twice`},
		{
			"a.paused", `{"ends":"2026-11-23T10:00:00+01:00"}`,
			LaneHold{},
			0, false,
			`"ends" is not known; known are until, reason, by`,
		},
		{"a.paused", `{"until"`, LaneHold{}, 0, false, "it is no JSON object like"},
		{"a.paused", `{}{}`, LaneHold{}, 0, false, "more than one"},
		{"a.capacity", "4\n", LaneHold{}, 4, true, ""},
		{"a.capacity", " 0", LaneHold{}, 0, false, ""},
		{"a.capacity", "unlimited\n", LaneHold{}, -1, true, ""},
		{"a.capacity", "1000000\n", LaneHold{}, 1_000_000, true, ""},
		{"a.capacity", "1000001\n", LaneHold{}, 0, true, `capacity "1000001" is neither`},
		{
			"a.capacity", "-1\n",
			LaneHold{},
			0, true,
			`capacity "-1" is neither a whole number from 0 to 1000000 nor "unlimited"`,
		},
		{"a.capacity", "many\n", LaneHold{}, 0, true, `capacity "many" is neither`},
		{"a.capacity", "4\n5\n", LaneHold{}, 0, true, `capacity "4\n5" is neither`},
		{"a.capacity", "+4", LaneHold{}, 0, false, `capacity "+4" is neither`},
		{"a.capacity", "", LaneHold{}, 0, false, `capacity "" is neither`},
		{"a.capacity", strings.Repeat("4", laneFileLimit+1), LaneHold{}, 0, false, "it is larger than"},
	} {
		put(t, tree, test.text, lanesDir, test.file)
		f, _ := ParseLaneFile(test.file)
		v, err := tree.Lanes.Read(f)
		bad, isBad := errors.AsType[*LaneFileError](err)
		switch {
		case test.problem != "":
			if !isBad || !strings.Contains(bad.Reason, test.problem) || bad.File != f {
				t.Errorf("%s %.40q: %v, want %q", test.file, test.text, err, test.problem)
			}
		case err != nil:
			t.Errorf("%s %.40q: %v", test.file, test.text, err)
		case !equalHolds(v.Hold, test.hold) || v.Capacity != test.capacity || v.Complete != test.whole:
			t.Errorf("%s %.40q: %+v", test.file, test.text, v)
		}
	}
}

func equalHolds(one, other LaneHold) bool {
	a, _ := json.Marshal(one)
	b, _ := json.Marshal(other)
	return string(a) == string(b) || one.Until != nil && other.Until != nil && one.Until.Equal(*other.Until) &&
		one.Reason == other.Reason && one.By == other.By
}

// TestHostileLaneFiles: anything but a regular file is neither followed nor waited for, and an
// unreadable file still pauses.
func TestHostileLaneFiles(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{})
	at := func(name string) string { return filepath.Join(tree.Lanes.Dir(), name) }
	secret := put(t, tree, "7\n", "secret")
	check(t, os.Symlink(secret, at("link.capacity")))
	check(t, syscall.Mkfifo(at("fifo.paused"), 0o600))
	check(t, os.Mkdir(at("folder.closed"), 0o700))
	check(t, os.WriteFile(at("odd.paused.bak"), nil, 0o600))
	check(t, os.WriteFile(at("a.rotation"), nil, 0o600))
	for name, want := range map[string]string{
		"link.capacity": "it is a symbolic link and not a file", "fifo.paused": "it is a fifo and not a file",
		"folder.closed": "it is a folder and not a file",
	} {
		f, _ := ParseLaneFile(name)
		_, err := tree.Lanes.Read(f)
		if bad, ok := errors.AsType[*LaneFileError](err); !ok || bad.Reason != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	files, odd, err := tree.Lanes.List()
	check(t, err)
	if len(files) != 3 || !slices.Equal(odd, []string{"odd.paused.bak"}) {
		t.Errorf("files %v, odd %v", files, odd)
	}
	if _, ok := errors.AsType[*BlockedError](tree.Lanes.Hold(LaneFile{"folder", LaneClosed}, LaneHold{})); !ok {
		t.Error("a folder in the way is not named")
	}
	check(t, tree.Lanes.SetCapacity("link", 3))
	if data, err := os.ReadFile(secret); err != nil || string(data) != "7\n" {
		t.Errorf("a link was followed: %q %v", data, err)
	}
}

func TestLaneFilesAreWrittenAndRemoved(t *testing.T) {
	t.Parallel()
	o := own(t)
	until := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	paused := LaneFile{"cookie", LanePaused}
	check(t, o.Lanes.Hold(paused, LaneHold{Until: &until, Reason: "a\nb", By: "ann"}))
	first, err := o.Lanes.Read(paused)
	check(t, err)
	if first.Hold.Reason != "a b" || !first.Hold.Until.Equal(until) || !first.Complete {
		t.Errorf("%+v", first)
	}
	check(t, o.Lanes.Hold(paused, LaneHold{}))
	second, err := o.Lanes.Read(paused)
	check(t, err)
	if first.Same(second) || !second.Same(second) || second.Hold.Until != nil {
		t.Errorf("%+v, then %+v", first, second)
	}
	if gone, err := o.Lanes.Expire(paused, first); gone || err != nil {
		t.Errorf("what was said since is removed: %t %v", gone, err)
	}
	if gone, err := o.Lanes.Expire(paused, second); !gone || err != nil {
		t.Errorf("%t %v", gone, err)
	}
	if _, err := o.Lanes.Read(paused); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if gone, err := o.Lanes.Release(paused); gone || err != nil {
		t.Errorf("%t %v", gone, err)
	}
	for _, n := range []int{0, 4, -1} {
		check(t, o.Lanes.SetCapacity("cookie", n))
		if v, err := o.Lanes.Read(LaneFile{"cookie", LaneCapacity}); err != nil || v.Capacity != n {
			t.Errorf("%d: %+v %v", n, v, err)
		}
	}
	for _, f := range []LaneFile{{"Cookie", LaneCapacity}, {"../x", LanePaused}, {"x", "rotation"}} {
		if err := o.Lanes.write(f, nil); err == nil {
			t.Errorf("%s was written", f)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	o := own(t)
	if n := o.Lanes.Rotation("cookie"); n != 0 {
		t.Errorf("%d before the first", n)
	}
	check(t, o.Lanes.SetRotation("cookie", 12))
	if n := o.Lanes.Rotation("cookie"); n != 12 {
		t.Errorf("%d, want 12", n)
	}
	put(t, o.Tree, "-3", lanesDir, "cookie.rotation")
	if n := o.Lanes.Rotation("cookie"); n != 0 {
		t.Errorf("%d of a file that means nothing", n)
	}
}

func FuzzLaneFiles(f *testing.F) {
	for _, text := range []string{"", "4\n", "-1", `{"until":"2026-11-23T10:00:00+01:00","reason":"x"}`, "reason", "{}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := ParseLaneCapacity(string(data)); err == nil && (n < -1 || n > MaxLaneCapacity) {
			t.Errorf("capacity %d", n)
		}
		hold, err := parseHold(data)
		if err == nil && (len(hold.Reason) > MaxLaneReason || strings.ContainsAny(hold.Reason, "\n\x1b")) {
			t.Errorf("reason %q", hold.Reason)
		}
	})
}
