package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

type listAnswer struct {
	Operations []struct {
		ID    statefs.ID
		State statefs.State
		Code  int
	}
	Count, Created int
	Durability     string
}

func TestSubmitOneEntry(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const body = `{"job":"once/return","params":{"a":"x"},"priority":7,"tags":["t"],"key":"k","not_before":"2126-01-01T00:00:00Z"}`
	first, a := r.post("/api/v1/operations", body)
	got := a.json(t)
	if a.status != 201 || got["priority"] != 7.0 || fmt.Sprint(got["tags"]) != "[t]" || got["key"] != "k" ||
		got["not_before"] != "2126-01-01T00:00:00Z" {
		t.Errorf("%d %v", a.status, got)
	}
	if id, a := r.post("/once/return", `{"a":"x"}`); a.status != 200 || id != first {
		t.Errorf("the same at its address: %d %s", a.status, id)
	}
	if id, a := r.post("/api/v1/operations", `{"job":"media/tagged"}`, "Idempotency-Key: k"); a.status != 201 ||
		id == first {
		t.Errorf("with a key: %d %s", a.status, id)
	}
	if _, a := r.post("/api/v1/operations", `{"job":"media/tagged"}`, "Idempotency-Key: k",
		"Prefer: wait=0"); a.status != 200 || a.header.Get("Preference-Applied") != "wait=0" {
		t.Errorf("with a key, again: %d %v", a.status, a.header)
	}
}

func TestSubmitList(t *testing.T) {
	t.Parallel()
	r := setup(t)
	there, _ := r.post("/once/return", `{"a":"x"}`)
	a := r.do("POST", "/api/v1/operations",
		`[{"job":"once/return","params":{"a":"y"}},{"job":"once/return","params":{"a":"X"}},{"job":"media/tagged"},{"job":"once/return","params":{"a":"y"}}]`)
	var got listAnswer
	must(t, json.Unmarshal([]byte(a.body), &got))
	if a.status != 201 || got.Count != 4 || got.Created != 2 || got.Durability != "process" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var codes []int
	for _, one := range got.Operations {
		if codes = append(codes, one.Code); one.State != statefs.Queued {
			t.Errorf("%s is %s", one.ID, one.State)
		}
	}
	if fmt.Sprint(codes) != "[201 200 201 200]" || got.Operations[1].ID.String() != there ||
		got.Operations[3].ID != got.Operations[0].ID {
		t.Errorf("answers %s", a.body)
	}
	if a := r.do("POST", "/api/v1/operations", `[{"job":"once/return","params":{"a":"y"}}]`); a.status != 200 {
		t.Errorf("nothing new: %d", a.status)
	}
}

func TestSubmitListBadInput(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const one = `{"job":"media/tagged"}`
	for name, c := range map[string]struct {
		body    string
		status  int
		message string
	}{
		"nothing":       {``, 400, `Invalid parameter 'job': it is missing`},
		"no JSON":       {`{`, 400, "it is cut off"},
		"an empty list": {`[]`, 400, "it is empty"},
		"10,001": {
			"[" + strings.Repeat(one+",", 10_000) + one + "]", 400,
			"it has 10001 entries, and at most 10000 are taken at once",
		},
		"no such job": {
			`[` + one + `,{"job":"media/no"}]`, 404,
			"The list is refused as a whole; entry 1: There is no job no in group media",
		},
		"wrong parameters": {`[` + one + `,{"job":"media/decode"}]`, 400, "entry 1: missing parameter 'title'"},
		"an unknown member": {
			`[` + one + `,{"job":"media/tagged","lane":"x"}]`, 400,
			"entry 1: Invalid parameter 'lane': there is no such member",
		},
		"a wrong option": {
			`[` + one + `,{"job":"media/tagged","priority":"high"}]`, 400,
			"entry 1: Invalid parameter 'priority'",
		},
		"a rejection": {`[{"job":"once/reject"},{"job":"once/reject"}]`, 409, "entry 1: Operation '"},
		"a missing parent": {
			`[` + one + `,{"job":"media/tagged","after":["a-b_2026-11-22_10-00-00_p1_r1"]}]`, 400,
			"entry 1: Invalid parameter 'after': there is no operation",
		},
		"a key that is reused": {`[{"job":"media/tagged","idempotency_key":"a"},{"job":"testrouter/streaming01","idempotency_key":"a"}]`, 422, "entry 1: The idempotency key 'a' names operation"},
		"33 MiB": {
			"[" + strings.Repeat(" ", 33<<20) + "]", 413,
			"The body has 34603010 bytes, the limit is 33554432",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.do("POST", "/api/v1/operations", c.body)
			r.problem(a, c.status, c.message)
			if strings.Contains(c.message, "entry 1") && a.json(t)["index"] != 1.0 {
				t.Errorf("the problem does not say which: %s", a.body)
			}
		})
	}
	r.problem(r.do("POST", "/api/v1/operations?wait=1s", `[`+one+`]`), http.StatusBadRequest,
		"a list of submits is answered at once")
	r.problem(r.do("POST", "/api/v1/operations?priority=1", one), http.StatusBadRequest,
		"Unknown parameter 'priority'; known here: wait")
	r.problem(r.do("POST", "/api/v1/operations", `[`+one+`]`, "Idempotency-Key: a"),
		http.StatusBadRequest, "names one submit")
	listing, err := r.tree.List()
	must(t, err)
	if len(listing.Markers) != 0 {
		t.Errorf("refused lists left %d operations", len(listing.Markers))
	}
}
