package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/acts"
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// act is what a person asks about a step, held against the operation as it stands.
type act struct {
	*request

	args   statefs.Args
	def    *catalog.Definition // nil: it cannot be read
	target string              // the step that is meant, "" when all are done
	aside  bool                // it is an optional one, for which the operation goes nowhere
}

// act carries out what a person asks about a step. A request that is older than the present state was meant for an earlier one.
func (d *Daemon) act(op *operation, r *request) error {
	if d.olderThanState(op, r) || carriedOut(op.rec, r) {
		d.meansNothing(op, r)
		return nil
	}
	args, err := statefs.ParseArgs(r.At.Args)
	if r.At.Odd {
		err = errors.New(`its file has something in it that is no JSON object: leave it empty, or write one as {"step": "split", "reason": "why"}`)
	}
	def, defErr := d.keptDefinition(op.rec)
	if mends(defErr) {
		return defErr
	}
	if err == nil {
		args, err = acts.Check(def, op.rec, op.state, r.Ask, args)
	}
	if err != nil {
		d.say(op, fmt.Sprintf("  %s refused: %s.", capital(string(r.Ask)), strings.TrimSuffix(printable(err.Error()), ".")))
		d.logger.Info("request refused", "id", op.id(), "request", r.Ask, "why", err)
		op.effected = append(op.effected, r.Taken)
		return nil
	}
	args.By = args.Asker(r.By)
	a := &act{request: r, args: args, def: def, target: args.Step}
	if at := steps.Find(op.rec.Steps, a.target); at != nil {
		a.aside = at.Optional && r.Ask != statefs.Set
	}
	switch r.Ask {
	case statefs.Retry:
		return d.retryStep(op, a)
	case statefs.Skip:
		return d.skipStep(op, a)
	case statefs.Set:
		return d.setValues(op, a)
	case statefs.Approve:
		return d.approve(op, a)
	case statefs.Reject:
		return d.reject(op, a)
	case statefs.Pause, statefs.Resume, statefs.Cancel, statefs.Prioritize:
	}
	d.meansNothing(op, r)
	return nil
}

// carriedOut reports whether the record says that a request has had its effect: a crash came before it was forgotten.
func carriedOut(rec *statefs.Record, r *request) bool {
	return slices.ContainsFunc(rec.Acts, func(a steps.Act) bool { return a.Ask == string(r.Ask) && a.AskedAt.Equal(r.At.At) })
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// by is the end of a line that says who asked.
func (a *act) by() string {
	if a.args.By == "" {
		return ""
	}
	return " by " + a.args.By
}

// note is the entry of the record about the request.
func (a *act) note(d *Daemon) steps.Act {
	return steps.Act{Ask: string(a.Ask), Step: a.target, By: a.args.By, At: d.owner.Now(), AskedAt: a.At.At, Reason: a.args.Reason, Values: a.args.Values}
}

// change makes what a person asks durable, in the record before the marker is renamed; without a cause the operation stays where it is. Nothing of
// it stands when that fails, and the request stays in hand.
func (d *Daemon) change(op *operation, a *act, line string, change func(*statefs.Record), cause statefs.Cause) error {
	before := op.rec
	rec := *before
	rec.Steps, rec.Corrected = steps.Clone(rec.Steps), maps.Clone(rec.Corrected)
	rec.Acts = append(slices.Clone(rec.Acts), a.note(d))
	change(&rec)
	op.rec = &rec
	if err := d.changed(op, cause); err != nil {
		op.rec = before
		op.taken = slices.Insert(op.taken, 0, a.request)
		return err
	}
	if a.args.Reason != "" {
		line += ": " + a.args.Reason
	}
	d.say(op, "  "+capital(printable(line))+".")
	op.effected = append(op.effected, a.Taken)
	return nil
}

func (d *Daemon) changed(op *operation, cause statefs.Cause) error {
	if cause != "" {
		return d.moveByRecord(op, cause)
	}
	if err := d.owner.WriteRecord(op.rec); err != nil {
		return err
	}
	return d.owner.Sync(op.id())
}

// retryStep tries again the step at which the operation stands, goes back to an earlier one, or tries again an optional one.
func (d *Daemon) retryStep(op *operation, a *act) error {
	target := steps.Find(op.rec.Steps, a.target)
	if target == nil {
		d.meansNothing(op, a.request)
		return nil
	}
	line := fmt.Sprintf("retry of step %s requested%s", a.target, a.by())
	if target.Status.Done() {
		if a.def == nil {
			d.meansNothing(op, a.request) // what needs it is not known
			return nil
		}
		line = fmt.Sprintf("back to step %s requested%s", a.target, a.by())
	}
	change := func(rec *statefs.Record) {
		if target.Status.Done() {
			a.def.Graph().Back(rec.Steps, a.target)
		}
		if at := steps.Find(rec.Steps, a.target); a.aside {
			again(at)
			return
		}
		for i := range rec.Steps { // the one at which it stands, which need not be after the one that it goes back to
			if s := &rec.Steps[i]; !s.Optional && !s.Status.Done() {
				again(s)
			}
		}
		d.forgiveIn(rec)
		rec.Attempts, rec.Warnings = 0, 0
	}
	if a.aside {
		return d.change(op, a, line, change, "")
	}
	other, err := d.again(op, func() error { return d.change(op, a, line, change, statefs.CauseRetry) })
	d.sayEqual(op, a.request, other)
	return err
}

// again has a step that failed, or to which somebody goes back, begin again.
func again(s *steps.Step) {
	if s.Status != steps.Pending {
		_ = s.Apply(steps.CauseRetry) // it failed, and so can be tried again
	}
	s.DueAt, s.Attempts, s.Deaths = nil, 0, 0
}

// skipStep goes on without a step.
func (d *Daemon) skipStep(op *operation, a *act) error {
	cause := statefs.CauseSkip
	if at := op.rec.CurrentStep(); a.aside || at == nil || at.Name != a.target {
		cause = "" // the operation stands where it stood
	}
	return d.change(op, a, fmt.Sprintf("step %s is skipped%s", a.target, a.by()), func(rec *statefs.Record) {
		now := d.owner.Now()
		s := steps.Find(rec.Steps, a.target)
		s.Reason, s.DueAt = a.args.Reason, nil
		if s.EndedAt == nil {
			s.EndedAt = &now
		}
		if s.Reason == "" {
			s.Reason = "skipped" + a.by()
		}
		_ = s.Apply(steps.CauseSkip) // the check has seen that it can be
		if cause != "" {
			d.forgiveIn(rec)
			rec.ExitCode, rec.Signal = nil, "" // they are of the attempt that nobody wants to mend
		}
	}, cause)
}

// setValues corrects parameters and outputs for the next try.
func (d *Daemon) setValues(op *operation, a *act) error {
	line := fmt.Sprintf("%s set%s", strings.Join(slices.Sorted(maps.Keys(a.args.Values)), ", "), a.by())
	return d.change(op, a, line, func(rec *statefs.Record) { setIn(rec, a.args) }, "")
}

// setIn sets values in a record.
func setIn(rec *statefs.Record, args statefs.Args) {
	for text, raw := range args.Values {
		value, ok := statefs.ParseValueName(text)
		if !ok {
			continue // the check has refused it
		}
		if value.Step == "" {
			if rec.Corrected == nil {
				rec.Corrected = make(map[string]json.RawMessage)
			}
			rec.Corrected[value.Name] = raw
			continue
		}
		if at := steps.Find(rec.Steps, value.Step); at != nil {
			if at.Outputs == nil {
				at.Outputs = make(map[string]json.RawMessage)
			}
			at.Outputs[value.Name] = raw
		}
	}
}

// approve lets an operation pass its gate.
func (d *Daemon) approve(op *operation, a *act) error {
	gate := false
	if a.def != nil {
		step := a.def.Step(a.target)
		gate = step != nil && step.Work == nil
	}
	return d.change(op, a, fmt.Sprintf("step %s is approved%s", a.target, a.by()), func(rec *statefs.Record) {
		now := d.owner.Now()
		s := steps.Find(rec.Steps, a.target)
		s.ApprovedAt, s.ApprovedBy, rec.Reason = &now, a.args.By, ""
		if gate {
			s.EndedAt = &now
			_ = s.Apply(steps.CauseApprove) // it is pending
		}
	}, statefs.CauseApprove)
}

// reject ends an operation at its gate. A crash before that is durable has it done again.
func (d *Daemon) reject(op *operation, a *act) error {
	now := d.owner.Now()
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	rec.Acts = append(slices.Clone(rec.Acts), a.note(d))
	message := fmt.Sprintf("step %s is rejected%s", a.target, a.by())
	if a.args.Reason != "" {
		message += ": " + a.args.Reason
	}
	rec.Error, rec.Reason = &statefs.Fault{Code: "rejected", Message: message}, ""
	s := steps.Find(rec.Steps, a.target)
	s.ErrorCode, s.ErrorMessage, s.EndedAt = "rejected", message, &now
	_ = s.Apply(steps.CauseReject) // it is pending
	d.say(op, "  "+capital(printable(message))+".")
	op.rec = &rec
	return d.endBy(op, a.Taken, statefs.CauseReject)
}
