package steps

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/internal/wordtest"
)

var update = flag.Bool("update", false, "rewrite docs/steps.md from the table of transitions")

// golden is the state machine of a step, written manually; any other pair is an error.
const golden = `
pending: start=running when=skipped skip=skipped approve=succeeded reject=failed_manual needs_person=failed_manual
running: done=succeeded retry_later=failed_retryable needs_person=failed_manual cut_off=pending
succeeded: back=pending
failed_retryable: start=running needs_person=failed_manual skip=skipped retry=pending cut_off=pending back=pending
failed_manual: skip=skipped retry=pending back=pending
skipped: back=pending
`

func TestEveryPairOfStatusAndCause(t *testing.T) {
	t.Parallel()
	want := make(map[string]string)
	for line := range strings.Lines(strings.TrimSpace(golden)) {
		from, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		for pair := range strings.FieldsSeq(rest) {
			cause, to, _ := strings.Cut(pair, "=")
			want[from+" "+cause] = to
		}
	}
	for _, from := range append(Statuses(), "", "banana") {
		for word := range wordtest.Meanings("transition.go") {
			s, cause := Step{Name: "split", Status: from}, Cause(word)
			err := s.Apply(cause)
			pair := fmt.Sprintf("%s %s", from, cause)
			to, legal := want[pair]
			if legal != (err == nil) || legal && string(s.Status) != to || !legal && s.Status != from {
				t.Errorf("%s leads to %q %v, want %q", pair, s.Status, err, to)
			}
			if refused, ok := errors.AsType[*TransitionError](err); ok == legal || ok &&
				(refused.Step != "split" || refused.From != from || refused.Cause != cause) {
				t.Errorf("%s: %v", pair, err)
			}
		}
	}
	words := wordtest.Meanings("step.go", "transition.go")
	for _, row := range transitions {
		if words[string(row.From)] == "" || words[string(row.Cause)] == "" || words[string(row.To)] == "" {
			t.Errorf("%v: a word without a meaning", row)
		}
	}
}

// TestStepsPage compares docs/steps.md with the table from which it is generated.
func TestStepsPage(t *testing.T) {
	t.Parallel()
	const page = "../../docs/steps.md"
	want := stepsPage()
	if *update {
		if err := errors.Join(os.WriteFile(page, want, 0o600), os.Chmod(page, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/steps.md differs from the table of transitions: run make generate (%v)", err)
	}
}

func stepsPage() []byte {
	statuses, causes := wordtest.Meanings("step.go"), wordtest.Meanings("transition.go")
	var page bytes.Buffer
	page.WriteString(`<!-- Generated from statefs/steps/transition.go by "make generate"; do not edit. -->

# Statuses of a step

An operation whose job has steps has one status for each of them, in its record. The status of the operation follows from them: it is the other of
two levels, drawn in [states.md](states.md).

` + "```mermaid\nstateDiagram-v2\n    [*] --> pending\n")
	for _, from := range Statuses() {
		for _, to := range Statuses() {
			var by []string
			for _, row := range transitions {
				if row.From == from && row.To == to {
					by = append(by, string(row.Cause))
				}
			}
			if len(by) > 0 {
				fmt.Fprintf(&page, "    %s --> %s: %s\n", from, to, strings.Join(by, ", "))
			}
		}
	}
	page.WriteString("```\n\n| status | what it means |\n|---|---|\n")
	for _, s := range Statuses() {
		fmt.Fprintf(&page, "| `%s` | %s |\n", s, statuses[string(s)])
	}
	page.WriteString("\n## Transitions\n\nAny pair of status and cause that is not here is refused and changes nothing.\n\n| from | cause | to | when |\n|---|---|---|---|\n")
	for _, row := range transitions {
		fmt.Fprintf(&page, "| `%s` | `%s` | `%s` | %s |\n", row.From, row.Cause, row.To, causes[string(row.Cause)])
	}
	return page.Bytes()
}
