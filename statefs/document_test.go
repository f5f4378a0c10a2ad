package statefs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnknownMembersAreKept rewrites a record of another version.
func TestUnknownMembersAreKept(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec, err := o.Submit(t.Context(), Submission{Group: "media", Job: "decode"})
	check(t, err)
	path := filepath.Join(o.Dir(), dayFile(rec.ID, ".json"))
	data, err := os.ReadFile(path)
	check(t, err)
	const extra = `,"colour":{"of":["the sky",1.50]},"a \"quoted\" name":null}`
	data = append(bytes.TrimSuffix(bytes.TrimSpace(data), []byte("}")), extra...)
	check(t, os.WriteFile(path, data, 0o640))
	for range 2 {
		rec, err = o.ReadRecord(rec.ID)
		check(t, err)
		rec.Phase = "later"
		check(t, o.WriteRecord(rec))
	}
	data, err = os.ReadFile(path)
	check(t, err)
	for _, want := range []string{`"colour":{"of":["the sky",1.50]}`, `"a \"quoted\" name":null`, `"phase":"later"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is missing in %s", want, data)
		}
	}
	if strings.Count(string(data), `"version"`) != 1 {
		t.Errorf("a member is there twice: %s", data)
	}
	if !json.Valid(data) {
		t.Errorf("no JSON: %s", data)
	}
}

// TestMembersInAnotherLetterCase: encoding/json accepts known members in any letter case, so they
// must not appear twice.
func TestMembersInAnotherLetterCase(t *testing.T) {
	t.Parallel()
	rec, err := unmarshalRecord([]byte(`{"Version":1,"PHASE":"x","other":1}`))
	check(t, err)
	if rec.Version != 1 || rec.Phase != "x" || len(rec.Extra) != 1 {
		t.Errorf("%+v", rec)
	}
}
