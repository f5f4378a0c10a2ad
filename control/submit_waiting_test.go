package control

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// The answer to a submit says why the operation waits, if that is known already, for a new and for an existing one.
func TestSubmitSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	r := setup(t)
	reason := func(a reply) string {
		why, _ := a.json(t)["waiting"].(map[string]any)
		text, _ := why["reason"].(string)
		return text
	}
	if a := r.do("POST", "/once/return", `{}`); a.status != 201 || reason(a) != "" {
		t.Errorf("nobody knows: %d %s", a.status, a.body)
	}
	r = setup(t, func(c *Config) {
		if played, ok := c.Daemon.Live.(*daemonStatus); ok {
			played.why = statefs.Waiting{Reason: statefs.WaitsForLane, Lane: "one", Position: 3}
		}
	})
	for _, test := range []struct {
		path, body string
		status     int
		headers    []string
		want       string
	}{
		{"/once/return", `{}`, 201, nil, "lane_full"},
		{"/once/return", `{}`, 200, nil, "lane_full"},
		{"/api/v1/operations", `{"job":"once/reject","params":{"a":"x"}}`, 201, nil, "lane_full"},
		{"/once/reject?delay=1h", `{"a":"y"}`, 201, nil, "not_before"},
	} {
		if a := r.do("POST", test.path, test.body, test.headers...); a.status != test.status || reason(a) != test.want {
			t.Errorf("%s: %d %s, want %s", test.path, a.status, a.body, test.want)
		}
	}
	if a := r.get("/testrouter/streaming01?format=stream", "Prefer: respond-async"); a.status != 202 ||
		reason(a) != "lane_full" {
		t.Errorf("respond-async: %d %s", a.status, a.body)
	}
}
