package statefs

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

const stampText = "_2025-11-26_13-07-00"

func TestParseIDTakesTheGrammar(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	for _, test := range []struct {
		text, endpoint, day string
		pid                 int
		sequence            uint64
	}{
		{"testrouter-streaming01_2025-11-26_13-07-00_p16384_r42", "testrouter-streaming01", "2025-11-26", 16384, 42},
		{"a" + stampText + "_p1_r1", "a", "2025-11-26", 1, 1},
		{"0" + stampText + "_p0_r0007", "0", "2025-11-26", 0, 7},
		{"a_p1_r2" + stampText + "_p3_r4", "a_p1_r2", "2025-11-26", 3, 4},
		{"a_p1_r2_2024-01-01_00-00-00_p5_r6" + stampText + "_p3_r4", "a_p1_r2_2024-01-01_00-00-00_p5_r6", "2025-11-26", 3, 4},
		{"a_r_p_" + stampText + "_p3_r4", "a_r_p_", "2025-11-26", 3, 4},
		{"a-" + "_2024-02-29_23-59-59_p3_r4", "a-", "2024-02-29", 3, 4},
		{long + stampText + "_p4294967295_r999999999999999", long, "2025-11-26", 4294967295, 999999999999999},
	} {
		id, err := ParseID(test.text)
		if err != nil {
			t.Errorf("ParseID(%q): %v", test.text, err)
			continue
		}
		if id.String() != test.text || id.Endpoint() != test.endpoint || id.Day() != test.day || id.PID() != test.pid ||
			id.Sequence() != test.sequence {
			t.Errorf("%q has the parts %q %q %q %d %d", test.text, id, id.Endpoint(), id.Day(), id.PID(), id.Sequence())
		}
	}
}

func TestParseIDRefuses(t *testing.T) {
	t.Parallel()
	const good = "a" + stampText + "_p1_r1"
	for name, text := range map[string]string{
		"empty":             "",
		"no parts":          "a",
		"no endpoint":       stampText[1:] + "_p1_r1",
		"upper case":        "A" + stampText + "_p1_r1",
		"leading dash":      "-a" + stampText + "_p1_r1",
		"leading score":     "_a" + stampText + "_p1_r1",
		"long endpoint":     strings.Repeat("a", 64) + stampText + "_p1_r1",
		"30 February":       "a_2025-02-30_13-07-00_p1_r1",
		"month 13":          "a_2025-13-01_13-07-00_p1_r1",
		"hour 24":           "a_2025-11-26_24-00-00_p1_r1",
		"short year":        "a_25-11-26_13-07-00_p1_r1",
		"no PID":            "a" + stampText + "_p_r1",
		"long PID":          "a" + stampText + "_p12345678901_r1",
		"no sequence":       "a" + stampText + "_p1_r",
		"sequence 0":        "a" + stampText + "_p1_r000",
		"long sequence":     "a" + stampText + "_p1_r1234567890123456",
		"trailing line end": good + "\n",
		"leading blank":     " " + good,
		"suffix":            good + ".running",
		"slash":             "a/b" + stampText + "_p1_r1",
		"dots":              "..%2f" + good,
		"parent":            "../" + good,
		"zero byte":         good + "\x00",
		"other digits":      "a" + stampText + "_p١_r1",
		"invalid UTF-8":     "a\xff" + stampText + "_p1_r1",
		"very long":         strings.Repeat("a", 1<<20),
	} {
		id, err := ParseID(text)
		if !errors.Is(err, ErrBadID) || !id.IsZero() {
			t.Errorf("%s: ParseID gives %q, %v", name, id, err)
		}
		if err != nil && len(err.Error()) > 700 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func TestMakeIDIsParseIDBackwards(t *testing.T) {
	t.Parallel()
	id, err := MakeID("g-j", testTime, 16384, 42)
	check(t, err)
	if id.String() != "g-j_2025-11-26_13-07-00_p16384_r42" {
		t.Errorf("MakeID gives %q", id)
	}
	if at := id.Time(testTime.Location()); !at.Equal(testTime.Truncate(time.Second)) {
		t.Errorf("its time is %s", at)
	}
	for name, build := range map[string]func() (ID, error){
		"endpoint with a slash": func() (ID, error) { return MakeID("g/j", testTime, 1, 1) },
		"no endpoint":           func() (ID, error) { return MakeID("", testTime, 1, 1) },
		"negative PID":          func() (ID, error) { return MakeID("g", testTime, -1, 1) },
		"sequence 0":            func() (ID, error) { return MakeID("g", testTime, 1, 0) },
		"too large a sequence":  func() (ID, error) { return MakeID("g", testTime, 1, 1e15) },
		"year 10000":            func() (ID, error) { return MakeID("g", testTime.AddDate(8000, 0, 0), 1, 1) },
	} {
		if id, err := build(); !errors.Is(err, ErrBadID) || !id.IsZero() {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
}

func TestIDAsText(t *testing.T) {
	t.Parallel()
	type holder struct {
		ID  ID          `json:"id"`
		Map map[ID]bool `json:"map,omitempty"`
	}
	id := foreignID(t, 1)
	data, err := json.Marshal(holder{id, map[ID]bool{id: true}})
	check(t, err)
	var back holder
	check(t, json.Unmarshal(data, &back))
	if back.ID != id || !back.Map[id] {
		t.Errorf("%s came back as %+v", data, back)
	}
	if err := json.Unmarshal([]byte(`{"id":"../../etc/passwd"}`), &back); !errors.Is(err, ErrBadID) {
		t.Errorf("a path was taken for an ID: %v", err)
	}
	if back.ID != id {
		t.Errorf("refused text changed the ID to %q", back.ID)
	}
}

func TestZeroIDHasEmptyParts(t *testing.T) {
	t.Parallel()
	var id ID
	if !id.IsZero() || id.String() != "" || id.Endpoint() != "" || id.Day() != "" || id.PID() != 0 || id.Sequence() != 0 ||
		!id.Time(time.UTC).IsZero() {
		t.Errorf("the zero ID has parts: %+v", id)
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("testrouter-streaming01_2025-11-26_13-07-00_p16384_r42")
	f.Add("a_p1_r2_2024-01-01_00-00-00_p5_r6_2025-11-26_13-07-00_p3_r4")
	f.Add("../a_2025-11-26_13-07-00_p3_r4")
	f.Add("a_2025-02-30_13-07-00_p3_r4\n")
	f.Add("a-_x_2025-11-26_13-07-00_p1234567890_r123456789012345")
	f.Add("_a_2025-11-26_13-07-00_p_r")
	f.Add("a_2025-11-26_13:07-00_p12345678901_r0")
	grammar := regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,62}_\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}_p\d{1,10}_r\d{1,15}\z`)
	f.Fuzz(func(t *testing.T, text string) {
		if hasGrammar(text) != grammar.MatchString(text) {
			t.Fatalf("%q has the grammar: %t, and by the pattern %t", text, hasGrammar(text), grammar.MatchString(text))
		}
		id, err := ParseID(text)
		if err != nil {
			if !errors.Is(err, ErrBadID) || !id.IsZero() {
				t.Fatalf("refused with %q, %v", id, err)
			}
			return
		}
		if id.String() != text || !grammar.MatchString(text) || strings.ContainsAny(text, "/.\x00") {
			t.Fatalf("accepted %q as %q", text, id)
		}
		if _, err := time.Parse("2006-01-02", id.Day()); err != nil || id.Sequence() == 0 || !isEndpoint(id.Endpoint()) {
			t.Fatalf("%q has the parts %q %q %d", text, id.Endpoint(), id.Day(), id.Sequence())
		}
		if !strings.HasPrefix(text, id.Endpoint()+"_"+id.Day()+"_") {
			t.Fatalf("%q does not begin with its parts %q %q", text, id.Endpoint(), id.Day())
		}
	})
}
