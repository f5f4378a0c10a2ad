package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// stepAction is a request about a step, resolved against the present record of the operation.
type stepAction struct {
	*request

	args     statefs.Args
	def      *catalog.Definition // nil if it cannot be read
	target   string              // the step that is meant, "" if all are done
	optional bool                // target is an optional step, so the operation itself changes no state
}

// stepRequestHandlers carry out the requests about a step, after [acts.Check].
var stepRequestHandlers = map[statefs.Action]func(*requests, *operation, *stepAction) error{
	statefs.Retry:   (*requests).retryStep,
	statefs.Skip:    (*requests).skipStep,
	statefs.Set:     (*requests).setValues,
	statefs.Approve: (*requests).approve,
	statefs.Reject:  (*requests).reject,
}

// refuse writes to the log of an operation why a request is refused.
func (q *requests) refuse(op *operation, ask statefs.Action, why error) {
	q.logLine(op, fmt.Sprintf("  %s refused: %s.", ask.Title(),
		strings.TrimSuffix(stream.Printable(why.Error()), ".")))
	q.logger.Info("request refused", "id", op.id(), "request", ask, "why", why)
}

// handleStepRequest carries out a request about a step.
func (q *requests) handleStepRequest(op *operation, r *request, _ decide.Answer) error {
	args, err := statefs.ParseArgs(r.At.Args)
	if r.At.Malformed {
		err = errors.New(`its file has something in it that is no JSON object: leave it empty, or write one as {"step": "split", "reason": "why"}`)
	}
	def, defErr := q.storedDefinition(op.rec)
	if isTransient(defErr) {
		return defErr
	}
	if err == nil {
		args, err = acts.Check(def, op.rec, op.state, r.Action, args)
	}
	if err != nil {
		q.refuse(op, r.Action, err)
		return nil
	}
	args.By = args.Requester(r.By)
	a := &stepAction{request: r, args: args, def: def, target: args.Step}
	if at := steps.Find(op.rec.Steps, a.target); at != nil {
		a.optional = at.Optional && r.Action != statefs.Set
	}
	return stepRequestHandlers[r.Action](q, op, a)
}

// alreadyApplied reports whether the record shows that a request has taken effect: a crash came
// before the request was dropped.
func alreadyApplied(rec *statefs.Record, r *request) bool {
	return slices.ContainsFunc(rec.ActionRecords, func(a steps.ActionRecord) bool {
		return a.Action == string(r.Action) &&
			a.RequestedAt.Equal(r.At.At)
	})
}

func capitalize(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// bySuffix is the end of a log line that names the requester.
func (a *stepAction) bySuffix() string {
	if a.args.By == "" {
		return ""
	}
	return " by " + a.args.By
}

// recordWith returns a copy of the record of an operation with an entry about a request.
func (q *requests) recordWith(op *operation, a *stepAction) *statefs.Record {
	rec := *op.rec
	rec.Steps, rec.Corrected = steps.Clone(rec.Steps), maps.Clone(rec.Corrected)
	rec.ActionRecords = append(slices.Clone(rec.ActionRecords), steps.ActionRecord{
		Action: string(a.Action), Step: a.target, By: a.args.By, At: q.owner.Now(),
		RequestedAt: a.At.At, Reason: a.args.Reason, Values: a.args.Values,
	})
	return &rec
}

// applyAction makes a request durable in the record, then renames the marker; without a cause the
// operation keeps its state. On an error op.rec is restored.
func (q *requests) applyAction(op *operation, a *stepAction, line string, change func(*statefs.Record),
	cause statefs.Cause,
) error {
	before := op.rec
	op.rec = q.recordWith(op, a)
	change(op.rec)
	if err := q.persistAction(op, cause); err != nil {
		op.rec = before
		return err
	}
	a.carriedOut = true
	if a.args.Reason != "" {
		line += ": " + a.args.Reason
	}
	q.logLine(op, "  "+capitalize(stream.Printable(line))+".")
	return nil
}

func (q *requests) persistAction(op *operation, cause statefs.Cause) error {
	if cause == "" {
		return q.commitRecord(op, op.rec)
	}
	row, err := statefs.TransitionFrom(op.state, cause)
	if err != nil {
		return err
	}
	row.Order = statefs.RecordFirst // the record has the request
	return q.makeTransition(op, row)
}

// retryStep retries the current step of the operation, goes back to an earlier one, or retries an
// optional one.
func (q *requests) retryStep(op *operation, a *stepAction) error {
	target := steps.Find(op.rec.Steps, a.target)
	if target == nil {
		return q.ignoreRequest(op, a.request, decide.Answer{})
	}
	line := fmt.Sprintf("retry of step %s requested%s", a.target, a.bySuffix())
	if target.Status.Done() {
		if a.def == nil {
			return q.ignoreRequest(op, a.request, decide.Answer{}) // the steps that depend on it are not known
		}
		line = fmt.Sprintf("back to step %s requested%s", a.target, a.bySuffix())
	}
	change := func(rec *statefs.Record) {
		if target.Status.Done() {
			a.def.Graph().RestartFrom(rec.Steps, a.target)
		}
		if at := steps.Find(rec.Steps, a.target); a.optional {
			resetStep(at)
			return
		}
		for i := range rec.Steps { // reset the current step, which need not depend on the target
			if s := &rec.Steps[i]; !s.Optional && !s.Status.Done() {
				resetStep(s)
			}
		}
		q.clearFailure(rec)
		rec.Attempts, rec.Warnings, rec.Backoff = 0, 0, 0
	}
	if a.optional {
		return q.applyAction(op, a, line, change, "")
	}
	return q.restart(op, a.request, func() error { return q.applyAction(op, a, line, change, statefs.CauseRetry) })
}

// resetStep makes a step that failed, or that a person goes back to, begin again.
func resetStep(s *steps.Step) {
	if s.Status != steps.Pending {
		_ = s.Apply(steps.CauseRetry) // it failed, so it can be retried
	}
	s.DueAt, s.Attempts, s.DiedAt, s.Backoff = nil, 0, nil, 0
}

// skipStep skips a step and goes on after it.
func (q *requests) skipStep(op *operation, a *stepAction) error {
	cause := statefs.CauseSkip
	if at := op.rec.CurrentStep(); a.optional || at == nil || at.Name != a.target {
		cause = "" // the operation keeps its state
	}
	return q.applyAction(op, a, fmt.Sprintf("step %s is skipped%s", a.target, a.bySuffix()), func(rec *statefs.Record) {
		s := steps.Find(rec.Steps, a.target)
		s.Reason, s.DueAt = cmp.Or(a.args.Reason, "skipped"+a.bySuffix()), nil
		if s.EndedAt == nil {
			s.EndedAt = new(q.owner.Now())
		}
		_ = s.Apply(steps.CauseSkip) // acts.Check has seen that it can be skipped
		if cause != "" {
			q.clearFailure(rec)
			rec.ExitCode, rec.Signal = nil, "" // they are of the attempt that the skip abandons
		}
	}, cause)
}

// setValues corrects parameters and outputs for the next attempt.
func (q *requests) setValues(op *operation, a *stepAction) error {
	line := fmt.Sprintf("%s set%s", strings.Join(slices.Sorted(maps.Keys(a.args.Values)), ", "), a.bySuffix())
	return q.applyAction(op, a, line, func(rec *statefs.Record) { setRecordValues(rec, a.args) }, "")
}

// setRecordValues sets the values of a request in a record.
func setRecordValues(rec *statefs.Record, args statefs.Args) {
	for text, raw := range args.Values {
		value, ok := statefs.ParseValueName(text)
		if !ok {
			continue // acts.Check has refused it
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
func (q *requests) approve(op *operation, a *stepAction) error {
	gate := false
	if a.def != nil {
		step := a.def.Step(a.target)
		gate = step != nil && step.Work == nil
	}
	return q.applyAction(op, a, fmt.Sprintf("step %s is approved%s", a.target, a.bySuffix()), func(rec *statefs.Record) {
		now := q.owner.Now()
		s := steps.Find(rec.Steps, a.target)
		s.ApprovedAt, s.ApprovedBy, rec.Reason = &now, a.args.By, ""
		if gate {
			s.EndedAt = &now
			_ = s.Apply(steps.CauseApprove) // it is pending
		}
	}, statefs.CauseApprove)
}

// reject ends an operation at its gate. After a crash before the end is durable, the request is
// carried out again.
func (q *requests) reject(op *operation, a *stepAction) error {
	rec := q.recordWith(op, a)
	message := fmt.Sprintf("step %s is rejected%s", a.target, a.bySuffix())
	if a.args.Reason != "" {
		message += ": " + a.args.Reason
	}
	rec.Error, rec.Reason = &statefs.Fault{Code: "rejected", Message: message}, ""
	s := steps.Find(rec.Steps, a.target)
	s.ErrorCode, s.ErrorMessage, s.EndedAt = "rejected", message, new(q.owner.Now())
	_ = s.Apply(steps.CauseReject) // it is pending
	q.logLine(op, "  "+capitalize(stream.Printable(message))+".")
	op.rec = rec
	return q.ends.endWork(op, a.request, decide.Answer{Effect: decide.EndWork, Cause: statefs.CauseReject})
}
