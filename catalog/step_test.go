package catalog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/steps"
)

func publish(t *testing.T) *Definition {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "valid", "steps.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defs, err := Parse("steps.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return defs[0]
}

func TestStepsAreRead(t *testing.T) {
	t.Parallel()
	d := publish(t)
	var order []string
	for _, s := range d.Steps {
		order = append(order, s.Name)
	}
	ingest, transcribe, review, last := d.Step("ingest"), d.Step("transcribe"), d.Step("review"), d.Step("publish")
	check, a, b := d.Step("check"), d.Step("collection-a"), d.Step("collection-b")
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"work", d.Work(), WorkSteps},
		{"order", order, []string{"ingest", "transcribe", "review", "publish", "check", "collection-a", "collection-b"}},
		{
			"kinds",
			[]Work{ingest.Work.Work(), transcribe.Work.Work(), check.Work.Work()},
			[]Work{WorkRun, WorkItems, WorkHandler},
		},
		{"gate", []any{review.Work == nil, review.Approve, review.Needs}, []any{true, true, []string{"transcribe"}}},
		{"optional", []bool{ingest.Optional, a.Optional}, []bool{false, true}},
		{"summary", []string{ingest.Summary, ingest.Work.Summary, d.Summary}, []string{
			"Reads the file", "Reads the file",
			"From a file to a page",
		}},
		{"address", []string{ingest.Work.Address(), ingest.Work.Hash()}, []string{"media/publish", d.Hash()}},
		{"run", ingest.Work.Run, []string{"ingest", "${params.path}"}},
		{"env", ingest.Work.Env, []EnvVar{{"LANG", "C.UTF-8"}, {"LEVEL", "2"}, {"TITLE", "${params.note}"}}},
		{"env of the job", last.Work.Env, []EnvVar{{"LANG", "C.UTF-8"}, {"LEVEL", "1"}}},
		{"dir", []string{ingest.Work.Dir, a.Work.Dir}, []string{"/srv/media", "/srv/${steps.ingest.outputs.title}"}},
		{
			"timeout",
			[]time.Duration{ingest.Work.Timeout, last.Work.Timeout},
			[]time.Duration{5 * time.Minute, 30 * time.Minute},
		},
		{"attempts", []int{ingest.Work.Retry.MaxAttempts, last.Work.Retry.MaxAttempts}, []int{5, 2}},
		{
			"classes",
			[]Class{classOf(ingest, 3), classOf(ingest, 75), classOf(last, 75), classOf(last, 77), classOf(last, 1)},
			[]Class{ClassRetryable, "", "", ClassManual, ""},
		},
		{
			"restart",
			[]Restart{ingest.Work.Restart(), transcribe.Work.Restart(), check.Work.Restart()},
			[]Restart{RestartAdopt, RestartResume, RestartRetry},
		},
		{
			"stall",
			[]any{check.Work.StallAfter, check.Work.OnStall, check.Work.Grace},
			[]any{time.Minute, StallRetry, 10 * time.Second},
		},
		{"items", transcribe.Work.Items.Range, &Range{
			First: Bound{Number: 1},
			Last:  Bound{Output: "steps.ingest.outputs.parts"},
		}},
		{
			"parallel",
			[]any{transcribe.Work.Parallel, transcribe.Work.FailWhen, last.Work.Parallel, last.Work.FailWhen},
			[]any{2, FailAny, 1, FailNever},
		},
		{
			"lane",
			[]any{transcribe.Lane, transcribe.Limits, ingest.Lane, ingest.Limits, d.Lane, d.Limits},
			[]any{"gpu", []string{"models"}, "", []string(nil), "cookie", []string{"disk"}},
		},
		{"outputs", ingest.Outputs, []string{"title", "parts"}},
		{
			"milestones",
			[]any{last.Milestone, d.Milestones},
			[]any{"published", []Milestone{{Name: "collection_synced", Steps: []string{"collection-a", "collection-b"}}}},
		},
		{
			"nothing follows a step",
			[]any{last.Work.Then, last.Work.Schedule, last.Work.Steps, d.Then.Address()},
			[]any{(*Then)(nil), d.Schedule, []*Step(nil), "media/next"},
		},
		{"position", last.Position(), Position{File: "steps.yaml", Line: 18, Column: 5}},
		{"condition", b.When, `steps["collection-a"].status == "succeeded" or (steps.ingest.outputs.parts ?? 0) in [1, 2]`},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.what, c.got, c.want)
		}
	}
}

func classOf(s *Step, exit int) Class { return s.Work.ExitCodes.Class("exit_code", &exit) }

func TestErrorsOfAStepAreFound(t *testing.T) {
	t.Parallel()
	s := publish(t).Step("publish")
	for text, want := range map[string]string{
		"login: credential expired":    "manual credentials_invalid",
		"HTTP 503\nHTTP 401":           "manual credentials_invalid",
		"HTTP 503\nbye":                "retryable provider_busy",
		"write: No space left\nHTTP 5": " disk_full",
		"":                             "",
	} {
		got := ""
		if p, line := s.ErrorIn(strings.Split(text, "\n")); p != nil {
			got = string(p.Class) + " " + p.Code
			if !p.Match.MatchString(line) {
				t.Errorf("%q: the line %q does not match", text, line)
			}
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func ingested(outputs map[string]string) []steps.Step {
	raw := map[string]json.RawMessage{}
	for name, value := range outputs {
		raw[name] = json.RawMessage(value)
	}
	return []steps.Step{
		{Name: "ingest", Status: steps.Succeeded, Outputs: raw},
		{Name: "collection-a", Status: steps.Skipped},
	}
}

func TestOutputsAreUsed(t *testing.T) {
	t.Parallel()
	d := publish(t)
	params, err := d.BindJSON([]byte(`{"path":"a b"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		title, parts string
		want, folder string
		items        int
	}{
		{`"A $(b) ${id}"`, `2`, "publish|A $(b) ${id}|2", "/srv/A $(b) ${id}", 2},
		{`{"a": [1]}`, `"3"`, `publish|{"a": [1]}|3`, `/srv/{"a": [1]}`, 3},
		{`null`, `0`, "publish||0", "/srv/", 0},
		{`true`, `1.5`, "publish|true|1.5", "/srv/true", -1},
		{``, ``, "publish||", "/srv/", -1},
	} {
		outputs := map[string]string{"title": c.title, "parts": c.parts}
		if c.title == "" {
			outputs = nil
		}
		v := Values{Params: params, ID: "ID", Steps: ingested(outputs)}
		if got := strings.Join(d.Step("publish").Work.Command(v), "|"); got != c.want {
			t.Errorf("command %s, want %s", got, c.want)
		}
		if got := d.Step("collection-a").Work.Folder(v); got != c.folder {
			t.Errorf("folder %s, want %s", got, c.folder)
		}
		work := d.Step("transcribe").Work
		if work.Total(params) != nil {
			t.Error("the total is known before the step that leaves it")
		}
		items := 0
		for _, err := range work.Items.List(t.Context(), "", v) {
			if items++; err != nil {
				items = -1
			}
		}
		if items != c.items {
			t.Errorf("%s: %d items, want %d", c.parts, items, c.items)
		}
	}
}

// The example of the documents is one.
func TestDocumentedSteps(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/jobs-with-steps.md")
	if err != nil {
		t.Fatal(err)
	}
	section := string(page)
	_, example, _ := strings.Cut(section, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	defs, err := Parse("jobs-with-steps.md", []byte(example))
	if err != nil || len(defs) != 1 || len(defs[0].Steps) != 6 {
		t.Fatalf("%d jobs, %v", len(defs), err)
	}
	if err := accepts(t, schema(t), []byte(example)); err != nil {
		t.Error(err)
	}
	_, conditions, _ := strings.Cut(section, "## Conditions\n")
	_, conditions, _ = strings.Cut(conditions, "```yaml\n")
	conditions, _, _ = strings.Cut(conditions, "```")
	judged := 0
	for line := range strings.Lines(conditions) {
		judged++
		job := "group: g\nname: n\nparams: {dry: {type: boolean, default: true}, language: {type: string, default: de}, tags: {type: array, default: []}}\nsteps:\n" +
			"  - {name: ingest, run: [x], outputs: [parts]}\n  - {name: probe, run: [x], outputs: [height]}\n  - {name: upload, run: [x]}\n" +
			"  - name: last\n    needs: [ingest, probe, upload]\n    run: [x]\n    " + line
		if _, err := Parse("condition.yaml", []byte(job)); err != nil {
			t.Error(err)
		}
	}
	if judged != 4 {
		t.Errorf("%d conditions", judged)
	}
}

func TestHandlersOfStepsAreKnown(t *testing.T) {
	t.Parallel()
	text := "group: g\nname: n\nsteps:\n  - {name: a, handler: fetch}\n  - {name: b, needs: [a], handler: fetchh}\n"
	c := New(Options{Extra: []Source{{"f.yaml", []byte(text)}}, Handlers: func() []string { return []string{"fetch"} }})
	err := c.Reload()
	if err == nil || err.Error() != `f.yaml:5:36: unknown handler "fetchh" (did you mean "fetch"? registered: fetch)` {
		t.Errorf("%v", err)
	}
}
