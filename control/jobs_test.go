package control

import (
	"encoding/json"
	"strings"
	"testing"
)

// staged is a job with steps whose order in the file differs from the order of execution.
const staged = `---
group: media
name: staged
summary: Ingest, review, publish
steps:
  - {name: publish, needs: [review], run: [publish, "${steps.ingest.outputs.title}"], milestone: published, lane: cookie, limits: [disk]}
  - {name: ingest, summary: Read the file, run: [ingest], outputs: [title]}
  - {name: review, needs: [ingest], approve: true}
  - {name: collect, needs: [ingest], optional: true, handler: simulation, when: 'steps.ingest.outputs.title != "<b>"'}
milestones: {collected: [collect]}
`

func TestAJobShowsItsSteps(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var job map[string]json.RawMessage
	must(t, json.Unmarshal([]byte(r.get("/api/v1/jobs/media/staged").body), &job))
	for name, want := range map[string]string{
		"work": `"steps"`,
		"steps": `[{"name":"ingest","summary":"Read the file","work":"run","outputs":["title"]},` +
			`{"name":"review","needs":["ingest"],"work":"gate","approve":true},` +
			`{"name":"publish","needs":["review"],"work":"run","milestone":"published","lane":"cookie","limits":["disk"]},` +
			`{"name":"collect","needs":["ingest"],"work":"handler","optional":true,"when":"steps.ingest.outputs.title != \"<b>\""}]`,
		"milestones": `[{"name":"collected","steps":["collect"]}]`,
	} {
		var got, wanted any
		must(t, json.Unmarshal(job[name], &got))
		must(t, json.Unmarshal([]byte(want), &wanted))
		gotText, err := json.Marshal(got)
		must(t, err)
		wantText, err := json.Marshal(wanted)
		must(t, err)
		if string(gotText) != string(wantText) {
			t.Errorf("%s: %s, want %s", name, gotText, wantText)
		}
	}
	if a := r.get("/api/v1/jobs/media/decode"); strings.Contains(a.body, `"steps"`) ||
		strings.Contains(a.body, "milestones") {
		t.Errorf("a job without steps: %s", a.body)
	}
	page := r.get("/media/staged").body
	for _, want := range []string{
		"<h2>Steps</h2>",
		"<td><code>review</code></td><td><code>ingest</code></td><td>gate, waits for an approval</td>",
		"optional, when <code>steps.ingest.outputs.title != &#34;&lt;b&gt;&#34;</code>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	if page := r.get("/media/decode").body; strings.Contains(page, "Steps") {
		t.Error("the page of a job without steps has some")
	}
}
