package daemon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// errorTail is how much of the last output of a step is searched for the error patterns of its job.
const errorTail = 64 << 10

// applyStepEnd records in a step how its run ended. It is called once per run, before the record is
// written.
func (d *Daemon) applyStepEnd(rec *statefs.Record, r *run, cause statefs.Cause) {
	rec.Steps = steps.Clone(rec.Steps)
	at := steps.Find(rec.Steps, r.step.name())
	if at == nil {
		return
	}
	now := d.owner.Now()
	at.EndedAt, at.LogTo = &now, logSize(r.logPath())
	if r.exit != nil && at.StartedAt != nil && r.exit.At.After(*at.StartedAt) && r.exit.At.Before(now) {
		at.EndedAt = &r.exit.At // the command may have ended while no daemon ran
	}
	change, verdict := stepCauses[cause]
	if !verdict {
		change = steps.CauseCutOff
	}
	if change == steps.CauseDone {
		at.Outputs, at.ErrorCode, at.ErrorMessage = r.outputsOf(r.step.def), "", ""
	} else if rec.Error != nil {
		at.ErrorCode, at.ErrorMessage = rec.Error.Code, rec.Error.Message
	}
	if change != steps.CauseDone && rec.RedoFrom == r.number+1 {
		at.RedoFrom = rec.RedoFrom
	}
	if change == steps.CauseCutOff {
		at.ErrorCode, at.ErrorMessage = "", ""
	}
	if err := at.Apply(change); err != nil {
		d.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
	}
}

// stepCauses maps the cause of an operation's transition to that of its step; on any other cause
// the step is cut off.
var stepCauses = map[statefs.Cause]steps.Cause{
	statefs.CauseDone: steps.CauseDone, statefs.CauseRetryLater: steps.CauseRetryLater,
	statefs.CauseRescued:     steps.CauseRetryLater,
	statefs.CauseNeedsPerson: steps.CauseNeedsPerson,
}

// cutOffStep records that the current step of an operation is no longer running and has no result.
func cutOffStep(rec *statefs.Record, now time.Time) {
	at := rec.CurrentStep()
	if at == nil || at.Status != steps.Running {
		return
	}
	rec.Steps = steps.Clone(rec.Steps)
	at = rec.CurrentStep()
	at.EndedAt = &now
	_ = at.Apply(steps.CauseCutOff) // a running step can be cut off
}

// endSteps updates the steps of an operation that ends before all of them are done: none of them is
// retried any more.
func endSteps(rec *statefs.Record, from statefs.State) {
	rec.Steps = steps.Clone(rec.Steps)
	for i := range rec.Steps {
		if s := &rec.Steps[i]; s.Status == steps.FailedRetryable {
			_ = s.Apply(steps.CauseCutOff) // it was to be retried
			s.DueAt = nil
		}
	}
	if from == statefs.WaitingApproval {
		rec.Reason = "" // the approval is no longer needed
	}
}

// outputsOf returns the declared outputs of a step that its result has.
func (r *run) outputsOf(def *catalog.Step) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	for _, name := range def.Outputs {
		if value, ok := r.report.member(name); ok {
			if out == nil {
				out = make(map[string]json.RawMessage)
			}
			out[name] = value
		}
	}
	return out
}

// missingOutput returns an error if a step that succeeded lacks a declared output, or if an output
// is too large for the record.
func (r *run) missingOutput() error {
	if r.step.def == nil {
		return nil
	}
	for _, name := range r.step.def.Outputs {
		value, ok := r.report.member(name)
		switch {
		case !ok:
			return &workError{code: outputMissing, err: fmt.Errorf("its result has no %q, which the job names as an output",
				name)}
		case len(value) > param.MaxString:
			return &workError{
				code: outputTooLarge,
				err:  fmt.Errorf("its output %q has %d bytes; at most %d are kept: write it to a file in JOBDIR_ARTIFACTS and give its name", name, len(value), param.MaxString),
			}
		}
	}
	return nil
}

// The error codes of a step that leaves no output, or an output that does not fit into the record.
// A retry would not change that.
const (
	outputMissing  = "output_missing"
	outputTooLarge = "output_too_large"
)

// matchErrorPattern finds the first error pattern of the job that matches the output of the work,
// changes the error accordingly, and returns its class.
func (r *run) matchErrorPattern(rec *statefs.Record) catalog.Class {
	if r.step.def == nil {
		return ""
	}
	if rec.Error.Code == outputMissing || rec.Error.Code == outputTooLarge {
		return catalog.ClassManual
	}
	if len(r.step.def.Errors) == 0 || finalCodes[rec.Error.Code] {
		return ""
	}
	pattern, line := r.step.def.ErrorIn(append(r.lastLines(), rec.Error.Message))
	if pattern == nil {
		return ""
	}
	rec.Error = &statefs.Fault{Code: cmp.Or(pattern.Code, rec.Error.Code), Message: stream.Printable(strings.TrimSpace(line))}
	return pattern.Class
}

// lastLines returns the last lines that the run wrote to its log.
func (r *run) lastLines() []string { return lastLines(r.logger, r.id, r.logPath(), r.step.from) }

// lastLines returns the last lines of a log that begins at from, nil if there is no log.
func lastLines(logger *slog.Logger, id statefs.ID, path string, from int64) []string {
	var data []byte
	f, err := files.OpenRegular(path)
	if err == nil {
		from = max(from, logSize(path)-errorTail)
		data, err = io.ReadAll(io.NewSectionReader(f, from, errorTail))
		_ = f.Close() // opened for reading
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("the output of a failed command cannot be read", "id", id, "log", path, "error", err)
	}
	var lines []string
	for line := range bytes.Lines(data) {
		lines = append(lines, string(bytes.TrimRight(line, "\r\n")))
	}
	return lines
}

// needsPersonLine is the log line for a step that waits for a person; it names the possible
// commands.
func needsPersonLine(rec *statefs.Record, at *steps.Step) string {
	return fmt.Sprintf("  ERROR: step %s: %s. A person must act: mend it, then 'jobdir retry %s'; or 'jobdir skip %s', or 'jobdir cancel %s'.",
		at.Name, rec.Error.Message, rec.ID, rec.ID, rec.ID)
}

// stepsReport returns the combined report of all steps of an operation: their items, and their
// outputs as the result.
func (d *Daemon) stepsReport(op *operation) *report {
	rep := new(report)
	if op.rec.Starts > 0 || op.rec.RetryOf != nil {
		if err := readItems(d.itemsOf(op.id()), rep, countsIn(op.rec), func(itemResult) {}); err != nil {
			d.logger.Error("item results are not in the footer", "id", op.id(), "error", err)
		}
	}
	for _, s := range op.rec.Steps {
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			rep.setField(field{name, s.Outputs[name]})
		}
	}
	return rep
}

// stepsField is the member of the footer with the status of each step.
func stepsField(list []steps.Step) json.RawMessage {
	fields := make([]field, 0, len(list))
	for i := range list {
		s := &list[i]
		entry := []field{text("status", string(s.Status))}
		if s.StartedAt != nil && s.EndedAt != nil {
			if f, err := newField("seconds", seconds(s.EndedAt.Sub(*s.StartedAt))); err == nil {
				entry = append(entry, f)
			}
		}
		if s.Retries > 0 {
			entry = append(entry, integer("retries", int64(s.Retries)))
		}
		if s.Optional {
			entry = append(entry, field{"optional", json.RawMessage("true")})
		}
		for _, f := range []field{
			text("error_code", s.ErrorCode), text("error_message", s.ErrorMessage),
			text("reason", s.Reason),
		} {
			if len(f.value) > len(`""`) {
				entry = append(entry, f)
			}
		}
		if len(s.Outputs) > 0 {
			if f, err := newField("outputs", s.Outputs); err == nil {
				entry = append(entry, f)
			}
		}
		fields = append(fields, field{s.Name, object(entry)})
	}
	return object(fields)
}

// seconds returns d in seconds, to a millisecond.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }

// applyStepStart records the start of the current step.
func (d *Daemon) applyStepStart(rec *statefs.Record, now time.Time) {
	rec.Steps = steps.Clone(rec.Steps)
	at := rec.CurrentStep()
	if at == nil {
		return
	}
	if at.ErrorCode != "" {
		at.Retries++
	}
	if at.Run == 0 || at.Run < rec.MainRun() { // a person went back to an earlier step
		rec.Attempts, rec.Warnings, rec.DiedAt, rec.Backoff, rec.RetryUntil = 0, 0, nil, 0, nil // per step
	}
	at.Begin(rec.Run, logSize(d.owner.LogPath(rec.ID)))
	at.StartedAt, at.EndedAt, at.ErrorCode, at.ErrorMessage, at.Reason = &now, nil, "", "", ""
	_ = at.Apply(steps.CauseStart) // passSkippedSteps has checked it
	if def, err := d.storedDefinition(rec); err == nil {
		rec.Phase = def.Phase(rec.Steps)
	}
	rec.Progress = progressNow(rec, statefs.Progress{At: now, Step: &statefs.StepProgress{Name: at.Name}})
}
