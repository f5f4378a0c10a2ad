package acts

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func values(pairs ...string) statefs.Args {
	out := make(map[string]json.RawMessage)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return statefs.Args{Values: out}
}

func TestValuesAreTakenAsTheJobTakesThem(t *testing.T) {
	t.Parallel()
	rec := film(t)
	rec.Corrected = map[string]json.RawMessage{"note": json.RawMessage(`"old"`)}
	got, err := Check(definition(t), rec, statefs.FailedManual, statefs.Set,
		values("params.path", `"  /b "`, "params.tries", "null", "params.note", "null", "steps.ingest.outputs.count", "3"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"params.path": `"/b"`, "params.tries": "3", "params.note": "null",
		"steps.ingest.outputs.count": "3",
	} {
		if string(got.Values[name]) != want {
			t.Errorf("%s is %s, want %s", name, got.Values[name], want)
		}
	}
	if got.Step != "" || got.Run != 4 || string(rec.Corrected["note"]) != `"old"` {
		t.Errorf("%+v, %s", got, rec.Corrected["note"])
	}
}

func TestValuesThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   statefs.Args
		member string
		text   string
	}{
		{values(), "values", "it is missing"},
		{values("params.pat", `"x"`), "values.params.pat", `unknown parameter 'pat' (did you mean "path"?)`},
		{values("params.pat", "null"), "values.params.pat", "unknown parameter"},
		{values("params.tries", `"3"`), "values.params.tries", "not an integer"},
		{values("params.tries", "10"), "values.params.tries", "tries"},
		{values("params.path", "null"), "values.params.path", "missing parameter 'path'"},
		{values("steps.ingset.outputs.count", "1"), "values.steps.ingset.outputs.count", "there is no step 'ingset'"},
		{values("steps.ingest.outputs.coutn", "1"), "values.steps.ingest.outputs.coutn", "its outputs are count"},
		{values("steps.split.outputs.count", "1"), "values.steps.split.outputs.count", "it has none"},
		{values("steps.ingest.outputs.count", "null"), "values.steps.ingest.outputs.count", "an output has a value"},
	} {
		_, err := Check(definition(t), film(t), statefs.FailedManual, statefs.Set, test.args)
		wrong, ok := errors.AsType[*RefusedError](err)
		if !ok || wrong.Member != test.member || !strings.Contains(wrong.Text, test.text) {
			t.Errorf("%s: %v, want %q", test.member, err, test.text)
		}
	}
	_, err := Check(nil, film(t), statefs.FailedManual, statefs.Set, values("params.path", `"x"`))
	if wrong, ok := errors.AsType[*RefusedError](err); !ok || wrong.Member != "" {
		t.Errorf("without a definition: %v", err)
	}
	_, err = Check(definition(t), film(t), statefs.FailedManual, statefs.Set, values("path", `"x"`))
	if _, ok := errors.AsType[*statefs.ArgsError](err); !ok {
		t.Errorf("a bare name: %v", err)
	}
}
