package control

import (
	"strings"
	"testing"
)

// Many deliveries are retried or dropped by a filter, and unchanged ones are reported.
func TestDeliveriesAreAskedForByFilter(t *testing.T) {
	t.Parallel()
	r := setup(t)
	_, names := r.withPendingDeliveries()
	const at = "/api/v1/outbox"
	a := r.do("POST", at,
		`{"action": "drop", "filter": {"status": ["pending", "failed_manual"], "kind": "webhook,folder"}, "dry_run": true}`)
	if got := a.json(t); a.status != 200 || got["total"] != 2.0 || got["done"] != 0.0 || len(r.fakeDaemon().bulk) != 0 ||
		!strings.Contains(a.body, `"entries":["`+names[0].String()) {
		t.Errorf("a dry run: %d %s", a.status, a.body)
	}
	if q := r.fakeDaemon().lastOutboxQuery; len(q.Statuses) != 2 || len(q.Kinds) != 2 || q.Limit != bulkPage {
		t.Errorf("the daemon was asked for %+v", q)
	}
	a = r.do("POST", at, `{"action": "retry", "reason": "it is back", "by": "anna"}`)
	if got := a.json(t); a.status != 200 || got["total"] != 2.0 || got["done"] != 1.0 || got["next"] != nil ||
		len(items(got["failures"])) != 1 || items(got["failures"])[0]["entry"] != names[1].String() {
		t.Errorf("a retry of all: %d %s", a.status, a.body)
	}
	if got := r.fakeDaemon().bulk; len(got) != 2 || got[0] != "retry "+names[0].String()+" anna it is back" {
		t.Errorf("the daemon did %q", got)
	}
	for body, want := range map[string]string{
		`{"action": "drop"}`:                                            "The filter is empty",
		`{"action": "drop", "filter": {}}`:                              "The filter is empty",
		`{"action": "again"}`:                                           "Invalid action",
		`{"action": "retry", "filter": {"limit": "3"}}`:                 "Unknown parameter 'limit'",
		`{"action": "retry", "filter": {"status": "gone"}}`:             "'status'",
		`{"action": "retry", "filter": {"job": ""}}`:                    "it is empty",
		`{"action": "retry", "filters": {}}`:                            "must be a JSON object",
		`{"action": "retry"} {}`:                                        "must be a JSON object",
		`{"action": "retry", "next": "x"}`:                              "'next'",
		`{"action": "retry", "by": "` + strings.Repeat("b", 200) + `"}`: "'by'",
		``: "must be a JSON object",
	} {
		if a := r.do("POST", at, body); a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %q", body, a.status, a.body, want)
		}
	}
	r.problem(r.do("POST", at+"?dry_run=true", `{"action": "retry"}`), 400,
		"Unknown parameter 'dry_run'; none is known here")
	if len(r.fakeDaemon().bulk) != 2 {
		t.Errorf("the daemon did %q", r.fakeDaemon().bulk)
	}
}
