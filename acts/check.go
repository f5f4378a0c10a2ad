package acts

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// RefusedError says why a request is not carried out.
type RefusedError struct {
	// Member is what is wrong in the request: "step", "values", "values.params.path". It is "" when the request itself is right, and the operation
	// has no use for it.
	Member string
	Text   string
}

func (r *RefusedError) Error() string { return r.Text }

// Check holds a retry, skip, set, approve or reject against an operation in a state, and returns its particulars with what was left out: the step
// and the run that it means, and the values as the operation takes them. def is the definition under which the operation was submitted; nil, when
// that cannot be read, refuses to set anything. The error is a [*RefusedError] or a [*statefs.ArgsError].
func Check(def *catalog.Definition, rec *statefs.Record, state statefs.State, ask statefs.Ask, args statefs.Args) (statefs.Args, error) {
	c := check{def: def, rec: rec, state: state, ask: ask, args: args}
	if err := c.run(); err != nil {
		return statefs.Args{}, err
	}
	c.args.Run = rec.MainRun()
	return c.args, nil
}

type check struct {
	def   *catalog.Definition
	rec   *statefs.Record
	state statefs.State
	ask   statefs.Ask
	args  statefs.Args
}

func (c *check) run() error {
	if _, err := c.args.JSON(); err != nil {
		return err
	}
	if c.args.Values != nil && c.ask != statefs.Set {
		return c.wrong("values", "only a set has values")
	}
	step, err := c.step()
	if err != nil {
		return err
	}
	if c.args.Run != 0 && c.args.Run != c.rec.MainRun() {
		return c.no(fmt.Sprintf("run %d was meant, and it is at run %d now", c.args.Run, c.rec.MainRun()))
	}
	if err := c.useful(step); err != nil {
		return err
	}
	if c.ask == statefs.Set {
		return c.values()
	}
	if step != nil {
		c.args.Step = step.Name
	}
	return nil
}

// step finds the step that is meant, nil for an operation without steps.
func (c *check) step() (*steps.Step, error) {
	if c.args.Step == "" {
		return c.rec.CurrentStep(), nil
	}
	if step := steps.Find(c.rec.Steps, c.args.Step); step != nil {
		return step, nil
	}
	if len(c.rec.Steps) == 0 {
		return nil, c.wrong("step", "operation '%s' has no steps", c.rec.ID)
	}
	return nil, c.wrong("step", "there is no step '%s'; its steps are %s", c.args.Step, c.names())
}

func (c *check) names() string {
	var names []string
	for i := range c.rec.Steps {
		names = append(names, c.rec.Steps[i].Name)
	}
	return strings.Join(names, ", ")
}

// useful refuses what changes nothing.
func (c *check) useful(step *steps.Step) error {
	switch c.ask {
	case statefs.Retry:
		return c.retry(step)
	case statefs.Skip:
		return c.skip(step)
	case statefs.Set:
		switch {
		case len(c.rec.Steps) == 0:
			return c.no("it has no steps")
		case !c.ask.Means(c.state):
			return c.no("a value is set while it waits for a person or for its next attempt")
		}
	case statefs.Approve, statefs.Reject:
		if !c.ask.Means(c.state) {
			return c.no("no step of it waits for an approval")
		}
		if at := c.rec.CurrentStep(); step != nil && at != nil && at.Name != step.Name {
			return c.wrong("step", "step %s does not wait for an approval: step %s does", step.Name, at.Name)
		}
	case statefs.Pause, statefs.Resume, statefs.Cancel, statefs.Prioritize:
		return errors.New("request " + string(c.ask) + " has no step")
	}
	return nil
}

func (c *check) retry(step *steps.Step) error {
	if aside(step) && c.state.Live() {
		return nil
	}
	if !c.ask.Means(c.state) {
		return c.no("it is started again when it has failed")
	}
	switch {
	case step == nil || c.isAt(step):
	case step.Status == steps.Pending:
		return c.wrong("step", "step %s has not begun; the operation stands at step %s", step.Name, c.rec.CurrentStep().Name)
	case step.Status == steps.Running:
		return c.wrong("step", "step %s is at work", step.Name)
	}
	return nil
}

func (c *check) skip(step *steps.Step) error {
	switch {
	case step == nil && len(c.rec.Steps) == 0:
		return c.no("it has no steps")
	case step == nil:
		return c.no("all of its required steps are done")
	case step.Status.Done():
		return c.wrong("step", "step %s is %s: there is nothing to skip", step.Name, step.Status)
	case aside(step) && c.state.Live():
		return nil
	case !c.ask.Means(c.state):
		return c.no("a step is skipped when it has failed, or waits for an approval")
	case step.Status == steps.Running:
		return c.wrong("step", "step %s is at work: it is skipped when it has failed", step.Name)
	}
	return nil
}

// aside reports whether a step has failed beside the others, which go on all the same.
func aside(step *steps.Step) bool {
	return step != nil && step.Optional && (step.Status == steps.FailedManual || step.Status == steps.FailedRetryable)
}

func (c *check) isAt(step *steps.Step) bool {
	at := c.rec.CurrentStep()
	return at == nil || at.Name == step.Name
}

// wrong says which member of the request is wrong.
func (c *check) wrong(member, format string, args ...any) error {
	return &RefusedError{Member: member, Text: fmt.Sprintf("Invalid parameter '"+member+"': "+format, args...)}
}

// no says that the operation has no use for the request, in which state it is, and what would help.
func (c *check) no(why string) error {
	state := string(c.state)
	if at := c.rec.CurrentStep(); at != nil && c.state.Live() {
		state += " at step " + at.Name
	}
	return &RefusedError{Text: fmt.Sprintf("Operation '%s' is %s and has no use for %s: %s%s", c.rec.ID, state, c.ask, why, helps(c.rec, c.state))}
}

// helps names the commands that change an operation in a state; "" when none does.
func helps(rec *statefs.Record, state statefs.State) string {
	command := func(ask statefs.Ask, then string) string { return fmt.Sprintf("'jobdir %s %s' %s", ask, rec.ID, then) }
	ends := command(statefs.Cancel, "ends it")
	var list []string
	switch state {
	case statefs.Scheduled, statefs.Queued:
		list = []string{command(statefs.Pause, "holds it"), ends}
	case statefs.Running:
		list = []string{command(statefs.Pause, "stops it"), ends}
	case statefs.Paused:
		list = []string{command(statefs.Resume, "lets it go on"), ends}
	case statefs.WaitingApproval:
		list = []string{command(statefs.Approve, "lets it go on"), command(statefs.Reject, "ends it")}
	case statefs.FailedRetryable, statefs.FailedManual:
		list = []string{command(statefs.Retry, "tries it again")}
		if len(rec.Steps) > 0 {
			list = append(list, fmt.Sprintf("'jobdir skip %s --reason TEXT' goes on without the step", rec.ID))
		}
		list = append(list, ends)
	case statefs.Trailing:
		list = []string{command(statefs.Cancel, "ends its optional steps")}
	case statefs.Completed, statefs.Cancelled, statefs.Failed:
		if rec.Result == statefs.Success {
			return "" // there is nothing to do again
		}
		list = []string{command(statefs.Retry, "does again what is not done")}
	}
	return "; " + strings.Join(slices.Clip(list), ", ")
}
