package statefs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestArgsAreReadBack(t *testing.T) {
	t.Parallel()
	in := Args{
		Step: "split", Run: 4, By: "anna", Reason: "die Quelle ist weg",
		Values: map[string]json.RawMessage{
			"params.path":               json.RawMessage(`"/srv/a"`),
			"steps.split.outputs.count": json.RawMessage(`3`),
		},
	}
	raw, err := in.JSON()
	check(t, err)
	out, err := ParseArgs(raw)
	check(t, err)
	again, err := out.JSON()
	check(t, err)
	if string(raw) != string(again) || out.Step != "split" || out.Run != 4 || out.By != "anna" || len(out.Values) != 2 {
		t.Errorf("%s became %s", raw, again)
	}
	if raw, err := new(Args).JSON(); raw != nil || err != nil {
		t.Errorf("nothing became %s, %v", raw, err)
	}
	if out, err := ParseArgs(nil); err != nil || out.Step != "" {
		t.Errorf("nothing is read as %+v, %v", out, err)
	}
}

// TestArgsNameTheRequester: a request names the requester, says that it is unknown, or leaves it to
// the owner of its file.
func TestArgsNameTheRequester(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args      Args
		raw, asks string
	}{
		{Args{Step: "a"}, `{"step":"a"}`, "root"},
		{Args{By: "anna"}, `{"by":"anna"}`, "anna"},
		{Args{Step: "a", Unnamed: true}, `{"step":"a","by":""}`, ""},
		{Args{By: "anna", Unnamed: true}, `{"by":"anna"}`, "anna"},
	} {
		raw, err := test.args.JSON()
		check(t, err)
		out, err := ParseArgs(raw)
		check(t, err)
		if string(raw) != test.raw || out.Requester("root") != test.asks || out.Unnamed != (test.asks == "") {
			t.Errorf("%+v is %s, by %q", test.args, raw, out.Requester("root"))
		}
	}
}

func TestArgsThatMeanNothing(t *testing.T) {
	t.Parallel()
	for text, member := range map[string]string{
		`[]`: "", `"split"`: "", `null`: "", `{`: "",
		`{"setp": "split"}`: "setp", `{"step": 3}`: "step", `{"run": "4"}`: "run", `{"run": -1}`: "run",
		`{"values": []}`:    "values",
		`{"by": "a\u0000"}`: "by", `{"reason": "` + strings.Repeat("x", MaxReason+1) + `"}`: "reason",
		`{"values": {"path": 1}}`: "values.path", `{"values": {"params.": 1}}`: "values.params.",
		`{"values": {"steps.a.count": 1}}`: "values.steps.a.count",
	} {
		_, err := ParseArgs(json.RawMessage(text))
		wrong, ok := errors.AsType[*ArgsError](err)
		if !ok || wrong.Member != member || wrong.Error() == "" {
			t.Errorf("%.40s: %v, want an error about %q", text, err, member)
		}
	}
	if _, err := (&Args{Reason: "two\nlines"}).JSON(); err == nil {
		t.Error("a reason of two lines was taken")
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add([]byte(`{"step":"split","run":1,"by":"anna","reason":"why","values":{"params.a":null,"steps.b.outputs.c":[1]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseArgs(data)
		if err != nil {
			return
		}
		raw, err := a.JSON()
		if err != nil {
			t.Fatalf("%s is read and not written: %v", data, err)
		}
		again, err := ParseArgs(raw)
		if err != nil || again.Step != a.Step || again.By != a.By || len(again.Values) != len(a.Values) {
			t.Fatalf("%s became %s: %v", data, raw, err)
		}
	})
}

func TestParamsNow(t *testing.T) {
	t.Parallel()
	rec := &Record{Params: json.RawMessage(`{"a":"<x>","b":1,"c":2}`)}
	if now, err := rec.EffectiveParams(); err != nil || string(now) != string(rec.Params) {
		t.Errorf("without corrections: %s, %v", now, err)
	}
	rec.Corrected = map[string]json.RawMessage{
		"b": json.RawMessage(`5`), "c": json.RawMessage(`null`),
		"d": json.RawMessage(`true`),
	}
	if now, err := rec.EffectiveParams(); err != nil || string(now) != `{"a":"<x>","b":5,"d":true}` {
		t.Errorf("with corrections: %s, %v", now, err)
	}
	rec.Params = json.RawMessage(`[`)
	if _, err := rec.EffectiveParams(); err == nil {
		t.Error("what is no JSON was taken")
	}
}

func TestValueNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"params.a", "steps.a.outputs.b"} {
		if n, ok := ParseValueName(text); !ok || n.String() != text {
			t.Errorf("%s is read as %+v, %v", text, n, ok)
		}
	}
}
