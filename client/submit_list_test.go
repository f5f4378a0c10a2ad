package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func TestSubmitOne(t *testing.T) {
	t.Parallel()
	var sent string
	status := http.StatusCreated
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent = r.Method + " " + r.URL.Path + " " + string(data)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"id":"`+id+`","state":"queued","priority":3}`)
	})
	key := ""
	full := client.Submission{
		Job: "g/job", Params: map[string]int{"n": 1}, Priority: new(3), Delay: 1500 * time.Millisecond,
		NotBefore: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC),
		After:     []statefs.ID{parsed(t)}, Require: statefs.RequireEnd, Tags: []string{"a"}, Key: &key, IdempotencyKey: "k",
	}
	const want = `POST /api/v1/operations {"job":"g/job","params":{"n":1},"priority":3,"not_before":"2026-11-23T09:00:00Z","after":["` + id +
		`"],"require":"end","tags":["a"],"key":"","idempotency_key":"k","delay":"1500ms"}`
	got, err := c.SubmitOne(t.Context(), full)
	if err != nil || !got.Created || got.ID != parsed(t) || got.State != statefs.Queued ||
		!strings.Contains(string(got.Raw), `"priority":3`) {
		t.Errorf("%+v, %v", got, err)
	}
	if sent != want {
		t.Errorf("sent\n%s, want\n%s", sent, want)
	}
	status = http.StatusOK
	if got, err := c.SubmitOne(t.Context(), client.Submission{Job: "g/job"}); err != nil || got.Created ||
		sent != `POST /api/v1/operations {"job":"g/job"}` {
		t.Errorf("one that is there: %+v, %v, sent %s", got, err, sent)
	}
}

func TestSubmitList(t *testing.T) {
	t.Parallel()
	answer := ""
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, answer)
	})
	answer = `{"operations":[{"id":"` + id + `","state":"queued","code":201},{"id":"` + id +
		`","state":"running","code":200}],"count":2,"created":1}`
	got, err := c.SubmitList(t.Context(), []client.Submission{{Job: "g/job"}, {Job: "g/job"}})
	if err != nil || len(got) != 2 || !got[0].Created || got[1].Created || got[1].State != statefs.Running ||
		got[1].ID != parsed(t) {
		t.Errorf("%+v, %v", got, err)
	}
	answer = `{"id":"` + id + `","state":"queued"}`
	if got, err := c.SubmitJSON(t.Context(), json.RawMessage(`{"job":"g/job"}`)); err != nil ||
		len(got) != 1 || !got[0].Created {
		t.Errorf("JSON of one: %+v, %v", got, err)
	}
	for _, answer = range []string{"", "[]", "{}", `{"operations":[{}]}`, `{"operations":7}`} {
		if got, err := c.SubmitList(t.Context(), nil); err == nil {
			t.Errorf("%q is taken for %+v", answer, got)
		}
		if got, err := c.SubmitOne(t.Context(), client.Submission{Job: "g/job"}); err == nil {
			t.Errorf("%q is taken for %+v", answer, got)
		}
	}
}

func TestSubmitRefused(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":"it does the same"}`)
	})
	_, err := c.SubmitOne(t.Context(), client.Submission{Job: "g/job"})
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusConflict ||
		err.Error() != "start g/job: it does the same" {
		t.Errorf("%v", err)
	}
}
