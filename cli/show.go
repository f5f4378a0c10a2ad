package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "show ID",
		Short:             "Show what is known of an operation, live or ended",
		Long:              `show prints the record of an operation. Without a daemon it reads it from the storage directory.`,
		Args:              exactlyOne("the ID of an operation"),
		ValidArgsFunction: a.completeIDs(1),
		RunE: a.opens(func(ctx context.Context, s *session, b *backend.Backend, args []string) error {
			return s.show(ctx, b, args[0], asJSON)
		}),
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (s *session) show(ctx context.Context, b *backend.Backend, text string, asJSON bool) error {
	id, err := b.ID(ctx, text)
	if err != nil {
		return err
	}
	op, err := b.Operation(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return s.streams.JSON(op.Raw)
	}
	full := api.Operation{Record: new(statefs.Record)}
	if err := json.Unmarshal(op.Raw, &full); err != nil {
		return fmt.Errorf("show %s: %w", text, err)
	}
	if full.Problem != "" {
		return fmt.Errorf("show %s: %s", full.ID, term.Printable(full.Problem))
	}
	full.Record.ID, full.Record.Status = full.ID, full.Status
	view := &stepsView{
		steps: full.Steps, acts: full.ActionRecords, attention: full.Attention,
		colour: coloured(s.streams.Out),
	}
	if failed := failedStep(op.Steps); failed != nil {
		view.failed, view.output = failed.Name, lastOutput(ctx, b, id, failed.Name)
	}
	return showRecord(s.streams, full.Record, full.Waiting, view)
}

// recordLine is a line of show, or several of one name; without a text it is left out.
type recordLine struct {
	name  string
	text  func(*statefs.Record) string
	texts func(*statefs.Record) []string
}

// recordLines are the fields of a record in the order in which people read them.
var recordLines = []recordLine{
	{name: "id", text: func(r *statefs.Record) string { return r.ID.String() }},
	{name: "job", text: func(r *statefs.Record) string { return strings.Trim(r.Group+"/"+r.Job, "/") }},
	{name: "status", text: statusLine},
	{name: "reason", text: func(r *statefs.Record) string { return r.Reason }},
	{name: waitingLine},
	{name: "stalled", text: func(r *statefs.Record) string { return shownTime(r.StalledAt) }},
	{name: "error", text: func(r *statefs.Record) string {
		if r.Error == nil {
			return ""
		}
		return r.Error.Code + ": " + r.Error.Message
	}},
	{name: "exit code", text: func(r *statefs.Record) string {
		if r.ExitCode == nil {
			return ""
		}
		return strconv.Itoa(*r.ExitCode)
	}},
	{name: "signal", text: func(r *statefs.Record) string { return r.Signal }},
	{name: "params", text: func(r *statefs.Record) string { return string(r.Params) }},
	{name: "corrected", text: func(r *statefs.Record) string {
		now, err := r.EffectiveParams()
		if len(r.Corrected) == 0 || err != nil {
			return ""
		}
		return string(now)
	}},
	{name: "tags", text: func(r *statefs.Record) string { return strings.Join(r.Tags, ", ") }},
	{name: "key", text: func(r *statefs.Record) string { return r.Key }},
	{name: "lane", text: func(r *statefs.Record) string { return r.Lane }},
	{name: "limits", text: func(r *statefs.Record) string { return strings.Join(r.Limits, ", ") }},
	{name: "priority", text: func(r *statefs.Record) string { return unlessZero("%d", r.Priority) }},
	{name: "after", text: func(r *statefs.Record) string {
		var after []string
		for _, id := range r.After {
			after = append(after, id.String())
		}
		if len(after) == 0 {
			return ""
		}
		return strings.Join(after, ", ") + " (" + r.Require + ")"
	}},
	{name: "not before", text: func(r *statefs.Record) string { return shownTime(r.NotBefore) }},
	{name: "retry of", text: func(r *statefs.Record) string {
		if r.RetryOf == nil {
			return ""
		}
		return r.RetryOf.String()
	}},
	{name: "then", text: func(r *statefs.Record) string {
		if r.Then == nil {
			return ""
		}
		return r.Then.ID.String() + r.Then.Error
	}},
	{name: "created by", text: func(r *statefs.Record) string { return r.CreatedBy }},
	{name: "created", text: func(r *statefs.Record) string { return shownTime(&r.CreatedAt) }},
	{name: "started", text: func(r *statefs.Record) string { return shownTime(r.StartedAt) }},
	{name: "finished", text: func(r *statefs.Record) string { return shownTime(r.FinishedAt) }},
	{name: "end number", text: func(r *statefs.Record) string { return unlessZero("%d", r.FinishedSeq) }},
	{name: "paused", text: func(r *statefs.Record) string { return unlessZero("%.3f s", r.PausedSeconds) }},
	{name: "alive", text: func(r *statefs.Record) string { return shownTime(r.HeartbeatAt) }},
	{name: "progress", text: func(r *statefs.Record) string {
		if r.Progress == nil {
			return ""
		}
		return term.Progress(r.Progress)
	}},
	{name: "items", text: func(r *statefs.Record) string {
		if r.Processed+r.FailedN == 0 {
			return ""
		}
		return fmt.Sprintf("%d processed, %d failed", r.Processed, r.FailedN)
	}},
	{name: "runs", text: func(r *statefs.Record) string {
		if len(r.Steps) > 0 { // attempts count for the current step
			return fmt.Sprintf("%d of steps, %d were interrupted, %d were rescued", r.Run, r.Interrupts, r.Rescues)
		}
		return fmt.Sprintf("%d (%d ended by themselves, %d were interrupted, %d were rescued)", r.Starts,
			r.Attempts, r.Interrupts, r.Rescues)
	}},
	{name: "deaths", text: func(r *statefs.Record) string {
		var times []string
		for i := range r.DiedAt {
			times = append(times, shownTime(&r.DiedAt[i]))
		}
		return strings.Join(times, ", ")
	}},
	{name: "processor", text: func(r *statefs.Record) string {
		if r.Resources == nil {
			return ""
		}
		return fmt.Sprintf("%.2f s user, %.2f s system", r.Resources.UserSeconds, r.Resources.SystemSeconds)
	}},
	{name: "artifacts", text: func(r *statefs.Record) string { return strings.Join(r.Artifacts, ", ") }},
	{name: "delivery", texts: func(r *statefs.Record) (lines []string) {
		for i := range r.Deliveries {
			lines = append(lines, deliveryLine(r.ID, &r.Deliveries[i]))
		}
		return lines
	}},
	{name: "pinned", text: func(r *statefs.Record) string {
		if r.Pinned {
			return "yes"
		}
		return ""
	}},
	{name: "act", texts: func(r *statefs.Record) (lines []string) {
		for i := range r.ActionRecords {
			lines = append(lines, actionLine(&r.ActionRecords[i]))
		}
		return lines
	}},
}

// waitingLine is the one line that is not in the record: only a daemon knows it.
const waitingLine = "waiting"

func statusLine(r *statefs.Record) string {
	status := string(r.Status)
	if r.Result != "" {
		status += ", " + string(r.Result)
	}
	if r.Trailing {
		status += "; optional steps still run"
	}
	return status
}

// unlessZero formats a value, or returns "" for its zero.
func unlessZero[T comparable](format string, value T) string {
	var zero T
	if value == zero {
		return ""
	}
	return fmt.Sprintf(format, value)
}

// waitingText describes why an operation waits.
func waitingText(w *statefs.Waiting) string {
	if w == nil {
		return ""
	}
	text := w.Sentence()
	if w.Position > 0 {
		text += fmt.Sprintf(", position %d in its lane", w.Position)
	}
	return text
}

// showRecord prints a record for people: its fields, why it waits, and its steps.
func showRecord(out term.Streams, rec *statefs.Record, waiting *statefs.Waiting, drawn *stepsView) error {
	for _, line := range recordLines {
		var texts []string
		switch {
		case line.name == waitingLine:
			texts = []string{waitingText(waiting)}
		case line.texts != nil:
			texts = line.texts(rec)
		default:
			texts = []string{line.text(rec)}
		}
		for _, text := range texts {
			if err := showPair(out, line.name, text); err != nil {
				return err
			}
		}
	}
	if len(drawn.steps) > 0 {
		for _, line := range drawn.lines() {
			if err := out.Line("%s", line); err != nil {
				return err
			}
		}
	}
	for _, t := range rec.Transitions {
		if err := showPair(out, "state", fmt.Sprintf("%s  %s (%s)", shownTime(&t.At), t.To, t.Cause)); err != nil {
			return err
		}
	}
	return nil
}

// showPair prints a name and its text, unless that is empty.
func showPair(out term.Streams, name, text string) error {
	if text == "" {
		return nil
	}
	return out.Line("%-11s %s", name, term.Printable(text))
}

func shownTime(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.Local().Format("2006-01-02 15:04:05.000")
}

// deliveryLine describes in one line the state of a delivery and what a person can do.
func deliveryLine(id statefs.ID, d *statefs.Delivery) string {
	text := fmt.Sprintf("%d, %s to %s: %s", d.Place, d.Send, d.Kind, d.State)
	switch o := d.Output; {
	case d.State == statefs.DeliveryManual:
		text += ": " + d.Error + "; fix the cause, then: jobdir outbox retry " + statefs.EntryName{
			ID: id, Place: d.Place,
			Kind: d.Kind,
		}.String()
	case d.State == statefs.DeliveryPending && d.Name != "":
		text += " as " + d.Name
	case o == nil:
	case d.Send == "artifacts":
		text += fmt.Sprintf(": %d files, %d bytes, in %s", o.Files, o.Bytes, o.Location)
	default:
		text += ": " + o.Location
	}
	return text
}
