package control

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A submit with a wait is answered with the operation when it has ended, or when the wait is over.
func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const path = "/testrouter/streaming01"
	for name, ask := range map[string]struct{ query, prefer, applied string }{
		"parameter":           {"?wait=25s", "", ""},
		"preference":          {"", "wait=25", "wait=25"},
		"one of several":      {"", `handling=lenient, wait="25"`, "wait=25"},
		"parameter over both": {"?wait=25s", "respond-async", ""},
		"then asynchronous":   {"", "respond-async, wait=25", "respond-async, wait=25"},
		"the longest":         {"", "wait=99999999", "wait=600"},
		"the first one":       {"", "wait=25, wait=0", "wait=25"},
	} {
		answered := make(chan reply, 1)
		go func() { answered <- r.do("POST", path+ask.query, "", "Prefer: "+ask.prefer) }()
		r.next().start().finish()
		a := <-answered
		if got := a.json(t); a.status != http.StatusCreated || got["result"] != "success" || got["state"] != "completed" {
			t.Errorf("%s: %d %v", name, a.status, got)
		}
		if got := a.header.Get("Preference-Applied"); got != ask.applied {
			t.Errorf("%s: Preference-Applied %q, want %q", name, got, ask.applied)
		}
	}
	for name, ask := range map[string]struct{ query, prefer, applied string }{
		"nothing":       {"", "", ""},
		"asynchronous":  {"", "respond-async", "respond-async"},
		"no seconds":    {"", "wait=0, respond-async", "wait=0, respond-async"},
		"not a number":  {"", "wait=soon", ""},
		"time is over":  {"?wait=1ms", "", ""},
		"no time given": {"?wait=0", "", ""},
	} {
		a := r.do("POST", path+ask.query, "", "Prefer: "+ask.prefer)
		if got := a.json(t); a.status != http.StatusCreated || got["state"] != "queued" {
			t.Errorf("%s: %d %v", name, a.status, got)
		}
		if got := a.header.Get("Preference-Applied"); got != ask.applied {
			t.Errorf("%s: Preference-Applied %q, want %q", name, got, ask.applied)
		}
	}
}

// An unknown option of a submit is refused with a hint where it belongs.
func TestSubmitOptions(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for query, message := range map[string]string{
		"?files=3":                          `A POST takes the parameters of the job as a JSON body, not in the URL: send {"files": ...}`,
		"?priority=high":                    "Invalid parameter 'priority': 'high' is not an integer",
		"?format=sse":                       "Unknown option 'format' of a submit: the URL takes wait, priority, delay, not_before, after, require, tags, key, the JSON body the parameters of the job",
		"?key=a&key=b":                      "Parameter 'key' is given 2 times",
		"?tags=a%20b":                       "Invalid parameter 'tags': 'a b' has a space",
		"?tags=" + strings.Repeat("a", 65):  "Invalid parameter 'tags': 'aaa",
		"?tags=" + strings.Repeat("a,", 33): "Invalid parameter 'tags': there are more than 32",
		"?wait=soon":                        "Invalid parameter 'wait': 'soon' must be a duration such as 5s, at most 10m0s",
	} {
		r.problem(r.do("POST", "/testrouter/streaming01"+query, ""), http.StatusBadRequest, message)
	}
}

// Tags of a submit are appended to those of the job, without duplicates.
func TestSubmitTags(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for query, want := range map[string]string{
		"":                                "[x y]",
		"?tags=":                          "[x y]",
		"?tags=a,b":                       "[x y a b]",
		"?tags=a&tags=b,":                 "[x y a b]",
		"?tags=y,a,a":                     "[x y a]",
		"?tags=" + url.QueryEscape("ä:1"): "[x y ä:1]",
	} {
		a := r.do("POST", "/media/tagged"+query, "")
		if got := fmt.Sprint(a.json(t)["tags"]); a.status != http.StatusCreated || got != want {
			t.Errorf("%s: %d, tags %s, want %s", query, a.status, got, want)
		}
	}
}

// next takes the only operation that waits to start.
func (r *rig) next() *work {
	r.t.Helper()
	var found *work
	r.until("an operation waits", func() bool {
		listing, err := r.tree.List()
		must(r.t, err)
		for _, marker := range listing.Markers {
			if marker.State == statefs.Queued {
				found = r.take(marker.ID.String())
			}
		}
		return found != nil
	})
	return found
}

// The streaming address answers 202 at once with respond-async, or after the given wait if the work has not ended by
// then.
func TestStreamRespondsAsync(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for prefer, applied := range map[string]string{
		"respond-async":         "respond-async",
		"wait=0, respond-async": "wait=0, respond-async", "respond-async, wait=1": "respond-async, wait=1",
	} {
		a := r.do("GET", "/testrouter/streaming01?files=2", "", "Prefer: "+prefer)
		got := a.json(t)
		id, _ := got["id"].(string)
		if a.status != http.StatusAccepted || got["state"] != "queued" ||
			a.header.Get("Location") != "/api/v1/operations/"+id || a.header.Get("Retry-After") != "1" ||
			got["durability"] != "process" {
			t.Errorf("%s: %d %v %s", prefer, a.status, a.header, a.body)
		}
		if got := a.header.Get("Preference-Applied"); got != applied {
			t.Errorf("%s: Preference-Applied %q", prefer, got)
		}
		r.take(id).start().finish()
	}
	answers := make(chan reply, 1)
	go func() {
		answers <- r.do("GET", "/testrouter/streaming01?files=2", "", "Prefer: respond-async, wait=600")
	}()
	r.next().start().finish()
	if a := <-answers; a.status != http.StatusOK || !strings.HasSuffix(a.body, "</end_json>\n") ||
		a.header.Get("Preference-Applied") != "respond-async, wait=600" {
		t.Errorf("of one that has ended in time: %d %v %s", a.status, a.header, a.body)
	}
	head := r.do("HEAD", "/testrouter/streaming01?files=2", "", "Prefer: respond-async")
	if head.status != http.StatusOK || head.header.Get("Location") != "" {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
}

func TestPollsSayWhenToAskAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	for what, a := range map[string]reply{
		"a poll": r.get(w.path("")), "a poll that waited": r.get(w.path("?wait=1ms")), "a submit that waited": r.do("POST",
			"/media/tagged?wait=1ms", ""),
	} {
		if got := a.header.Get("Retry-After"); got != "1" {
			t.Errorf("%s: Retry-After %q", what, got)
		}
	}
	w.finish()
	if a := r.get(w.path("")); a.header.Get("Retry-After") != "" {
		t.Errorf("of one that has ended: Retry-After %q", a.header.Get("Retry-After"))
	}
}
