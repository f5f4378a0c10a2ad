package decide

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

var update = flag.Bool("update", false, "write testdata anew")

// situations are the columns of the table of requests.
var situations = []struct {
	name string
	set  func(*Snapshot)
}{
	{"without work", func(*Snapshot) {}},
	{"not due", func(o *Snapshot) { o.Resume = statefs.CauseRetryLater }},
	{"with work", func(o *Snapshot) { o.Working = true }},
	{"pausing", func(o *Snapshot) { o.Working, o.Pausing = true, true }},
	{"being cancelled", func(o *Snapshot) { o.Working, o.Ending = true, statefs.Cancel }},
	{"being killed", func(o *Snapshot) { o.Working, o.Ending = true, statefs.ForceCancel }},
	{"ended", func(o *Snapshot) { o.Ended = true }},
}

// The table in testdata has what each request does in each state. It is written by
// go test ./daemon/decide -run Requests -update.
func TestRequestsTable(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	cell := func(text string) { fmt.Fprintf(&table, "%-20s", text) }
	for _, action := range statefs.Actions() {
		if action.Spec().NeedsSteps {
			continue // package acts decides
		}
		cell(string(action))
		for _, s := range situations {
			cell(s.name)
		}
		table.WriteString("\n")
		for _, state := range statefs.LiveStates() {
			cell("  " + string(state))
			for _, s := range situations {
				o := Snapshot{State: state, Resume: statefs.CauseRelease}
				s.set(&o)
				a := Decide(o, Requested{Action: action}, Env{})
				switch to, err := statefs.Next(state, a.Cause); {
				case a.Effect == Ignore:
					cell("-")
				case a.Effect == Transition && err != nil:
					t.Errorf("%s of what is %s, %s: %v", action, state, s.name, err)
				case a.Effect == Transition:
					cell("to " + string(to))
				default:
					cell(string(a.Effect))
				}
			}
			table.WriteString("\n")
		}
	}
	var lines []string
	for line := range strings.Lines(table.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	got := strings.Join(lines, "\n") + "\n"
	const file = "testdata/requests.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the requests do something else than %s says; the table is now\n%s", file, got)
	}
}

// A request that was made before the operation entered its state, or that the record has already, starts nothing twice.
func TestStaleRequest(t *testing.T) {
	t.Parallel()
	waits := Snapshot{State: statefs.FailedManual}
	steps := Snapshot{State: statefs.FailedManual, HasSteps: true}
	for _, c := range []struct {
		name   string
		of     Snapshot
		action statefs.Action
		stale  bool
		want   Effect
	}{
		{"retry", waits, statefs.Retry, false, Retry},
		{"stale retry", waits, statefs.Retry, true, Ignore},
		{"stale cancel", waits, statefs.Cancel, true, EndWork},
		{"retry of a step", steps, statefs.Retry, false, Step},
		{"stale retry of a step", steps, statefs.Retry, true, Ignore},
		{"stale skip", steps, statefs.Skip, true, Ignore},
		{"skip without steps", waits, statefs.Skip, false, Ignore},
	} {
		if got := Decide(c.of, Requested{c.action, c.stale}, Env{}).Effect; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
