package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

func TestParseEverything(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "valid", "decode.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defs, err := Parse("decode.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	d := defs[0]
	var params []string
	for _, p := range d.Params {
		params = append(params, p.Name+" "+string(p.Type)+" "+p.Default.Text())
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"address", d.Address() + " " + d.Endpoint() + " " + string(d.Work()), "media/decode media-decode run"},
		{"summary", d.Summary, "Decode every variant of a title"},
		{"params", params, []string{
			"title string ", "files integer 20", "ratio number 0.5", "mode string fast",
			"dry boolean false",
		}},
		{"tags", d.Tags, []string{"video", "2026"}},
		{"env", d.Env, []EnvVar{
			{"LANG", "C.UTF-8"},
			{"LEVEL", "3"},
			{"MODE", "0644"},
			{"VERBOSE", "true"},
			{"TITLE", "${params.title}"},
		}},
		{"run", d.Run, []string{"decode", "--title", "${params.title}", "--", "5", "${HOME}", "${id}"}},
		{"max_log", d.MaxLog, param.Bytes(1 << 30)},
		{"words", []string{string(d.FailWhen), string(d.OnDisconnect)}, []string{"any", "cancel"}},
		{"grace", d.Grace, 90 * time.Second},
		{"times", []time.Duration{d.Timeout, d.StallAfter}, []time.Duration{30 * time.Minute, 5 * time.Minute}},
		{"ending", []string{string(d.OnStall), string(d.Restart())}, []string{"cancel", "retry"}},
		{"attempts", d.Retry.MaxAttempts, 3},
		{"parallel", d.Parallel, 1},
		{"source", string(d.Source()), string(data)},
		{"position", d.Position(), Position{File: "decode.yaml", Line: 1, Column: 1}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.what, c.got, c.want)
		}
	}
}

func TestParseQueue(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "valid", "queue.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defs, err := Parse("queue.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	d := defs[0]
	params, err := d.BindJSON([]byte(`{"subscription_id":"s ${params.page}"}`))
	if err != nil {
		t.Fatal(err)
	}
	key, err := d.KeyFor(params)
	if err != nil {
		t.Fatal(err)
	}
	minimal := job(t, "run: [x]\n")
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"lane", []string{d.Lane, defs[1].Lane, minimal.Lane}, []string{"cookie", "default", "default"}},
		{"limits", d.Limits, []string{"yt-dlp", "disk"}},
		{"key", []string{key, defs[1].Key, minimal.Key}, []string{"s ${params.page}", "7", ""}},
		{"key_order", []KeyOrder{d.KeyOrder, minimal.KeyOrder}, []KeyOrder{KeyByPriority, KeyBySubmit}},
		{"priority", []int{d.Priority, minimal.Priority}, []int{-5, 0}},
		{"unique", []Unique{d.Unique, defs[1].Unique, minimal.Unique}, []Unique{
			{HitNext, []string{"subscription_id"}},
			{OnHit: HitOff},
			{OnHit: HitReturn},
		}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.what, c.got, c.want)
		}
	}
	params, err = d.BindJSON([]byte(`{"subscription_id":"` + strings.Repeat("x", MaxKey+1) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.KeyFor(params); err == nil || !strings.Contains(err.Error(), "longer than 512 bytes") {
		t.Errorf("a key that is too long: %v", err)
	}
}

func TestDocumentsKeepTheirText(t *testing.T) {
	t.Parallel()
	text := "\ufeff# head\n---  # first\n# one\ngroup: a\nname: one\nrun: [x]\n\n---\r\ngroup: a\r\nname: two\r\nrun: ['---', \"...\"]\r\n"
	defs, err := Parse("f.yaml", []byte(text))
	if err != nil || len(defs) != 2 {
		t.Fatalf("%d definitions, %v", len(defs), err)
	}
	if got := string(defs[0].Source()); got != "# one\ngroup: a\nname: one\nrun: [x]\n\n" {
		t.Errorf("first %q", got)
	}
	if got := string(defs[1].Source()); got != "group: a\r\nname: two\r\nrun: ['---', \"...\"]\r\n" {
		t.Errorf("second %q", got)
	}
	if defs[1].Position() != (Position{File: "f.yaml", Line: 9, Column: 1}) || len(defs[1].Hash()) != 64 {
		t.Errorf("second at %s, hash %s", defs[1].Position(), defs[1].Hash())
	}
}

// Files that are made to keep a parser busy are refused before it sees them, or
// are small enough for it. There is no clock in this test: without the bounds it
// takes minutes and meets the time limit of go test.
func TestHostileFilesAreRefused(t *testing.T) {
	t.Parallel()
	const size = 128 << 10
	fill := func(before, unit, after string) string {
		return before + strings.Repeat(unit, (size-len(before)-len(after))/len(unit)) + after
	}
	for _, c := range []struct{ text, want string }{
		{fill("", "[", ""), "nested deeper"},
		{fill("", "{a: ", ""), "nested deeper"},
		{fill("", "- ", ""), "nested deeper"},
		{fill("", "? ", ""), `keys with "?"`},
		{fill("", "a: b\n", ""), "more than 10000 words and signs"},
		{fill("", "a:\n", ""), "more than 10000 words and signs"},
		{fill("a: [", "x, ", "]"), "more than 10000 words and signs"},
		{fill("a: |\n", "\n", ""), "more than 100 empty lines"},
		{fill("a: |\n", "  x\n\n", ""), `unknown key "a"`},
		{fill("a: |\n", " \n", ""), "more than 100 empty lines"},
		{fill("a: ", "x", ""), `unknown key "a"`},
		{fill("a: \"", "\\n", "\""), `unknown key "a"`},
		{fill("a: '", "x\n ", "'"), `unknown key "a"`},
		{fill("a: ", "x\n  ", ""), `unknown key "a"`},
		{fill("", "#\n", "a: b"), "more than 10000 words and signs"},
		{fill("", "---\n", ""), "more than 1000 documents"},
		{fill("", "&", ""), "anchors and aliases"},
		{fill("", "\"", ""), ""},
		{"group: a\x00", "control character U+0000"},
		{"group: \xff", "1:8: the file has a byte that is not UTF-8"},
		{"group: a\rname: b", "1:9: the file has a carriage return without a line feed"},
		{"group: a\nname: \u2028", "2:7: the file has the line separator U+2028"},
	} {
		_, err := Parse("f.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := Parse("f.yaml", make([]byte, yamlfile.MaxFile+1)); err == nil {
		t.Error("a file that is too large is accepted")
	}
}

func FuzzParse(f *testing.F) {
	for _, dir := range []string{"valid", "invalid"} {
		for _, data := range corpus(f, dir) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 8<<10 {
			return
		}
		defs, err := Parse("f.yaml", data)
		if err != nil {
			ps, _ := errors.AsType[Problems](err)
			if len(ps) == 0 || defs != nil {
				t.Fatalf("an error without problems: %v", err)
			}
			for _, p := range ps {
				if p.Line < 1 || p.Column < 1 || p.Message == "" || p.Line > strings.Count(string(data), "\n")+1 {
					t.Errorf("a problem without a place: %+v", p)
				}
			}
			return
		}
		for _, d := range defs {
			checkStable(t, d)
			if !shortName.MatchString(d.Endpoint()) {
				t.Errorf("endpoint name %q", d.Endpoint())
			}
		}
	})
}

func TestRetriesAreRead(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "valid", "retries.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defs, err := Parse("retries.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Retry{
		{MaxAttempts: 5, Initial: 5 * time.Second, Factor: 3, Cap: 10 * time.Minute, Jitter: 0.5, For: 24 * time.Hour},
		{
			MaxAttempts: UnboundedAttempts, Initial: time.Hour, Factor: DefaultRetryFactor, Cap: time.Hour,
			Jitter: DefaultRetryJitter, For: 24 * time.Hour,
		},
	} {
		if got := defs[i].Retry; got != want {
			t.Errorf("%s: %+v, want %+v", defs[i].Name, got, want)
		}
	}
	short, err := Parse("short.yaml", []byte("group: g\nname: n\nrun: [x]\nretry: {initial: 5s}\n"))
	if err != nil || short[0].Retry.Cap != DefaultRetryCap || short[0].Retry.MaxAttempts != 1 {
		t.Errorf("without cap: %v, %v", short, err)
	}
	if d := defs[0]; d.QueueTimeout != 6*time.Hour || d.Deadline != 24*time.Hour {
		t.Errorf("queue_timeout %s, deadline %s", d.QueueTimeout, d.Deadline)
	}
	for _, c := range []struct {
		def  int
		code string
		exit int
		want Class
	}{
		{0, "exit_code", 75, ClassRetryable},
		{0, "exit_code", 3, ClassWarn},
		{0, "exit_code", 1, ""},
		{0, "exit_code", 4, ClassFinal},
		{0, "timeout", 75, ClassWarn},
		{0, "handler_failed", -1, ClassRetryable},
		{1, "exit_code", 69, ClassRetryable},
		{1, "exit_code", 78, ClassManual},
		{1, "exit_code", 64, ""},
		{1, "signal", -1, ""},
		{2, "exit_code", 77, ClassManual},
		{2, "exit_code", 78, ClassManual},
		{2, "exit_code", 75, ""},
		{3, "exit_code", 77, ""},
	} {
		exit := &c.exit
		if c.exit < 0 {
			exit = nil
		}
		if got := defs[c.def].ExitCodes.Class(c.code, exit); got != c.want {
			t.Errorf("%s %d of %s is %q, want %q", c.code, c.exit, defs[c.def].Name, got, c.want)
		}
	}
}

func TestSchedulesAreRead(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "valid", "schedules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defs, err := Parse("schedules.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	s := defs[0].Schedule
	if s.Spec.Cron() != "0 3 * * *" || s.Spec.Timezone() != "Europe/Berlin" || s.Jitter != 10*time.Minute ||
		s.Overlap != "queue" || s.Missed != "all" {
		t.Errorf("%+v", s)
	}
	if got := string(s.Params.JSON()); got != `{"files":7,"title":"night"}` {
		t.Errorf("params %s", got)
	}
	if s := defs[1].Schedule; s.Overlap != "skip" || s.Missed != "once" || s.Jitter != 0 ||
		string(s.Params.JSON()) != "{}" {
		t.Errorf("%+v", s)
	}
}
