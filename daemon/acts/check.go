package acts

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// RefusedError is the reason why a request is refused.
type RefusedError struct {
	// Member is the invalid member of the request: "step", "values", "values.params.path". It is "" if the
	// request is valid but has no effect on the operation.
	Member string
	Text   string
}

func (r *RefusedError) Error() string { return r.Text }

// Check checks a retry, skip, set, approve or reject against an operation in a state. It returns the
// arguments with defaults filled in: the step, its run, and the values with the types of the job. def is the
// definition under which the operation was submitted; if it is nil, because it cannot be read, a set is
// refused. The error is a [*RefusedError] or a [*statefs.ArgsError].
func Check(def *catalog.Definition, rec *statefs.Record, state statefs.State, ask statefs.Action,
	args statefs.Args,
) (statefs.Args, error) {
	c := check{def: def, rec: rec, state: state, action: ask, args: args}
	if err := c.run(); err != nil {
		return statefs.Args{}, err
	}
	c.args.Run = rec.MainRun()
	return c.args, nil
}

type check struct {
	def    *catalog.Definition
	rec    *statefs.Record
	state  statefs.State
	action statefs.Action
	args   statefs.Args
}

func (c *check) run() error {
	if _, err := c.args.JSON(); err != nil {
		return err
	}
	if c.args.Values != nil && c.action != statefs.Set {
		return c.invalidMember("values", "only a set has values")
	}
	step, err := c.step()
	if err != nil {
		return err
	}
	if c.args.Run != 0 && c.args.Run != c.rec.MainRun() {
		return c.refusal(fmt.Sprintf("run %d was meant, and it is at run %d now", c.args.Run, c.rec.MainRun()))
	}
	if err := c.checkUseful(step); err != nil {
		return err
	}
	if c.action == statefs.Set {
		return c.values()
	}
	if step != nil {
		c.args.Step = step.Name
	}
	return nil
}

// step returns the step of the request, nil for an operation without steps.
func (c *check) step() (*steps.Step, error) {
	if c.args.Step == "" {
		if c.state == statefs.Trailing && (c.action == statefs.Retry || c.action == statefs.Skip) {
			return c.rec.FailedOptionalStep(), nil
		}
		return c.rec.CurrentStep(), nil
	}
	if step := steps.Find(c.rec.Steps, c.args.Step); step != nil {
		return step, nil
	}
	if len(c.rec.Steps) == 0 {
		return nil, c.invalidMember("step", "operation '%s' has no steps", c.rec.ID)
	}
	return nil, c.invalidMember("step", "there is no step '%s'; its steps are %s", c.args.Step, StepNames(c.rec.Steps))
}

// StepNames lists the names of steps for messages.
func StepNames(list []steps.Step) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return strings.Join(names, ", ")
}

// checkUseful refuses a request without effect.
func (c *check) checkUseful(step *steps.Step) error {
	switch c.action { //nolint:exhaustive // the others act on no step
	case statefs.Retry:
		return c.retry(step)
	case statefs.Skip:
		return c.skip(step)
	case statefs.Set:
		switch {
		case len(c.rec.Steps) == 0:
			return c.refusal("it has no steps")
		case !c.action.AppliesIn(c.state) && (!c.state.Live() || c.rec.FailedOptionalStep() == nil):
			return c.refusal("a value is set while it waits for a person or for its next attempt, or an optional step of it does")
		}
	case statefs.Approve, statefs.Reject:
		if !c.action.AppliesIn(c.state) {
			return c.refusal("no step of it waits for an approval")
		}
		if at := c.rec.CurrentStep(); step != nil && at != nil && at.Name != step.Name {
			return c.invalidMember("step", "step %s does not wait for an approval: step %s does", step.Name, at.Name)
		}
	default:
		return errors.New("request " + string(c.action) + " has no step")
	}
	return nil
}

func (c *check) retry(step *steps.Step) error {
	if isFailedOptional(step) && c.state.Live() {
		return nil
	}
	if !c.action.AppliesIn(c.state) {
		return c.refusal("it is started again when it has failed")
	}
	if c.rec.Lost() {
		return c.refusal("its record was lost, and with it its parameters; submit it again")
	}
	at := c.rec.CurrentStep()
	switch {
	case step == nil || at == nil || at.Name == step.Name:
	case step.Status == steps.Pending:
		return c.invalidMember("step", "step %s has not begun; the operation stands at step %s", step.Name, at.Name)
	case step.Status == steps.Running:
		return c.invalidMember("step", "step %s is at work", step.Name)
	}
	return nil
}

func (c *check) skip(step *steps.Step) error {
	switch {
	case step == nil && len(c.rec.Steps) == 0:
		return c.refusal("it has no steps")
	case step == nil:
		return c.refusal("all of its required steps are done")
	case step.Status.Done():
		return c.invalidMember("step", "step %s is %s: there is nothing to skip", step.Name, step.Status)
	case isFailedOptional(step) && c.state.Live():
		return nil
	case !c.action.AppliesIn(c.state):
		return c.refusal("a step is skipped when it has failed, or waits for an approval")
	case step.Status == steps.Running:
		return c.invalidMember("step", "step %s is at work: it is skipped when it has failed", step.Name)
	}
	return nil
}

// isFailedOptional reports whether an optional step has failed; the others continue.
func isFailedOptional(step *steps.Step) bool {
	return step != nil && step.Optional && (step.Status == steps.FailedManual || step.Status == steps.FailedRetryable)
}

// invalidMember returns the error for an invalid member of the request.
func (c *check) invalidMember(member, format string, args ...any) error {
	return &RefusedError{Member: member, Text: fmt.Sprintf("Invalid parameter '"+member+"': "+format, args...)}
}

// refusal returns the error for a request without effect, with the state of the operation and helpful
// commands.
func (c *check) refusal(why string) error {
	state := string(c.state)
	if at := c.rec.CurrentStep(); at != nil && c.state.Live() {
		state += " at step " + at.Name
	}
	return &RefusedError{Text: fmt.Sprintf("Operation '%s' is %s and has no use for %s: %s%s", c.rec.ID, state, c.action,
		why, helpfulCommands(c.rec, c.state))}
}

// helpfulCommands names the commands that have an effect on an operation in a state; "" if there are none.
func helpfulCommands(rec *statefs.Record, state statefs.State) string {
	command := func(ask statefs.Action, then string) string {
		return fmt.Sprintf("'jobdir %s %s' %s", ask, rec.ID, then)
	}
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
		if !rec.Lost() {
			list = []string{command(statefs.Retry, "tries it again")}
		}
		if len(rec.Steps) > 0 {
			list = append(list, fmt.Sprintf("'jobdir skip %s --reason TEXT' goes on without the step", rec.ID))
		}
		list = append(list, ends)
	case statefs.Trailing:
		if rec.FailedOptionalStep() != nil {
			list = []string{command(statefs.Retry, "tries its optional step again"), command(statefs.Skip, "gives that step up")}
		}
		list = append(list, command(statefs.Cancel, "ends its optional steps"))
	case statefs.Completed, statefs.Cancelled, statefs.Failed:
		if rec.Result == statefs.Success {
			return "" // there is nothing to retry
		}
		list = []string{command(statefs.Retry, "does again what is not done")}
	}
	return "; " + strings.Join(slices.Clip(list), ", ")
}
