package catalog

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/outbox"
)

// deliveryOf reads a job with one target.
func deliveryOf(t *testing.T, target string) (*Definition, *Delivery) {
	t.Helper()
	defs,
		err := Parse("f.yaml",
		[]byte("group: g\nname: n\nparams: {p: {type: string, required: true}}\nrun: [x]\ndeliver:\n  - "+target+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return defs[0], defs[0].Deliver[0]
}

func TestDeliveryDefaults(t *testing.T) {
	t.Parallel()
	_, d := deliveryOf(t, "folder: {path: /srv}")
	if d.Kind.Name != "folder" || d.Send != outbox.SendResult || d.OnEnded || d.RetryFor != 0 ||
		d.Settings.Text("key") != "${id}.json" {
		t.Errorf("a folder is %+v", d)
	}
	if _, d = deliveryOf(t, "folder: {path: /srv, send: log}"); d.Settings.Text("key") != "${id}.log" {
		t.Errorf("the key of a log is %q", d.Settings.Text("key"))
	}
	_, d = deliveryOf(t, `webhook: {url: "https://x.example/a"}`)
	if d.Kind.Name != "webhook" || d.Settings.Text("method") != http.MethodPost ||
		d.Settings.Duration("timeout") != 30*time.Second ||
		d.Kind.Destination(d.Settings).Key != "webhook https://x.example/a" {
		t.Errorf("a webhook is %+v", d)
	}
	_, d = deliveryOf(t, `webhook: {url: "https://x.example:81?token=secret", secret_env: JOBDIR_SECRET_HOOK}`)
	at := d.Kind.Destination(d.Settings)
	if at.Label != "webhook https://x.example:81" || !strings.HasSuffix(at.Key, " JOBDIR_SECRET_HOOK") {
		t.Errorf("it is called %q and told apart as %q", at.Label, at.Key)
	}
}

// No value of a parameter makes a name that leads outside.
func TestDeliveryNames(t *testing.T) {
	t.Parallel()
	const folder, hook = `folder: {path: /srv, key: "a/${params.p}/${id}.json"}`,
		`webhook: {url: "https://x.example/a/${params.p}?id=${id}"}`
	for _, c := range []struct{ target, value, want, problem string }{
		{folder, "b", "a/b/ID.json", ""},
		{folder, "b/c", "a/b/c/ID.json", ""},
		{folder, "ä b", "a/ä b/ID.json", ""},
		{folder, "${id}", "a/${id}/ID.json", ""},
		{folder, "..", "", "would lead outside"},
		{folder, "b/../../..", "", "would lead outside"},
		{folder, ".", "", "would lead outside"},
		{folder, "", "", "an empty part"},
		{folder, "/etc", "", "an empty part"},
		{folder, `b\c`, "", `has a \`},
		{folder, "b\nc", "", "no name has"},
		{folder, "b\xff", "", "no name has"},
		{folder, strings.Repeat("b", 201), "", "more than 200 bytes"},
		{folder, strings.Repeat("b/", 600), "", "longer than 1024 bytes"},
		{hook, "b c", "https://x.example/a/b%20c?id=ID", ""},
		{hook, "b/c?d&e#f+g", "https://x.example/a/b%2Fc%3Fd%26e%23f%2Bg?id=ID", ""},
		{hook, "@evil.example", "https://x.example/a/%40evil.example?id=ID", ""},
		{hook, "..", "", "would lead elsewhere"},
		{hook, "../..", "", "would lead elsewhere"},
	} {
		def, d := deliveryOf(t, c.target)
		params, err := def.Bind(map[string][]string{"p": {c.value}})
		if err != nil && c.value != "b\xff" {
			t.Fatalf("bind %q: %v", c.value, err)
		}
		if err != nil {
			continue // no parameter holds it
		}
		got, err := d.Name(Values{Params: params, ID: "ID"})
		switch {
		case c.problem == "" && (err != nil || got != c.want):
			t.Errorf("with %q the name is %q, %v, want %q", c.value, got, err, c.want)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("with %q the name is %q, %v, want a problem %q", c.value, got, err, c.problem)
		}
	}
}
