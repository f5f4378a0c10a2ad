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
	cmd := &cobra.Command{
		Use:               "show ID",
		Short:             "Show what is known of an operation, live or ended",
		Long:              `show prints the record of an operation. Without a daemon it reads it from the storage directory.`,
		Args:              exactlyOne("the ID of an operation"),
		ValidArgsFunction: a.completeIDs(1),
		RunE:              a.opens("", show),
	}
	jsonFlag(cmd)
	return cmd
}

func show(ctx context.Context, s *session, b *backend.Backend, args []string) error {
	id, err := b.ID(ctx, args[0])
	if err != nil {
		return err
	}
	op, err := b.Operation(ctx, id)
	if err != nil {
		return err
	}
	if s.json {
		return s.streams.JSON(op.Raw)
	}
	full := api.Operation{Record: new(statefs.Record)}
	if err := json.Unmarshal(op.Raw, &full); err != nil {
		return fmt.Errorf("show %s: %w", args[0], err)
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

// recordText is what show prints of a record: lines of a name and a text. A line without a text is left out.
type recordText []string

func (t *recordText) add(name, text string) {
	if text != "" {
		*t = append(*t, fmt.Sprintf("%-11s %s", name, term.Printable(text)))
	}
}

// addRequest adds what an operation is, what it was submitted with, and why it waits.
func (t *recordText) addRequest(r *statefs.Record, waiting *statefs.Waiting) {
	t.add("id", r.ID.String())
	t.add("job", strings.Trim(r.Group+"/"+r.Job, "/"))
	t.add("status", statusLine(r))
	t.add("reason", r.Reason)
	t.add("waiting", waitingText(waiting))
	t.add("stalled", shownTime(r.StalledAt))
	if r.Error != nil {
		t.add("error", r.Error.Code+": "+r.Error.Message)
	}
	if r.ExitCode != nil {
		t.add("exit code", strconv.Itoa(*r.ExitCode))
	}
	t.add("signal", r.Signal)
	t.add("params", string(r.Params))
	if now, err := r.EffectiveParams(); len(r.Corrected) > 0 && err == nil {
		t.add("corrected", string(now))
	}
	t.add("tags", strings.Join(r.Tags, ", "))
	t.add("key", r.Key)
	t.add("lane", r.Lane)
	t.add("limits", strings.Join(r.Limits, ", "))
	t.add("priority", unlessZero("%d", r.Priority))
	var after []string
	for _, id := range r.After {
		after = append(after, id.String())
	}
	if len(after) > 0 {
		t.add("after", strings.Join(after, ", ")+" ("+r.Require+")")
	}
	t.add("not before", shownTime(r.NotBefore))
	if r.RetryOf != nil {
		t.add("retry of", r.RetryOf.String())
	}
	if r.Then != nil {
		t.add("then", r.Then.ID.String()+r.Then.Error)
	}
}

// addWork adds what has happened to an operation.
func (t *recordText) addWork(r *statefs.Record) {
	t.add("created by", r.CreatedBy)
	t.add("created", shownTime(&r.CreatedAt))
	t.add("started", shownTime(r.StartedAt))
	t.add("finished", shownTime(r.FinishedAt))
	t.add("end number", unlessZero("%d", r.FinishedSeq))
	t.add("paused", unlessZero("%.3f s", r.PausedSeconds))
	t.add("alive", shownTime(r.HeartbeatAt))
	if r.Progress != nil {
		t.add("progress", term.Progress(r.Progress))
	}
	if r.Processed+r.FailedN != 0 {
		t.add("items", fmt.Sprintf("%d processed, %d failed", r.Processed, r.FailedN))
	}
	if len(r.Steps) > 0 { // attempts count for the current step
		t.add("runs", fmt.Sprintf("%d of steps, %d were interrupted, %d were rescued", r.Run, r.Interrupts, r.Rescues))
	} else {
		t.add("runs", fmt.Sprintf("%d (%d ended by themselves, %d were interrupted, %d were rescued)", r.Starts,
			r.Attempts, r.Interrupts, r.Rescues))
	}
	var deaths []string
	for i := range r.DiedAt {
		deaths = append(deaths, shownTime(&r.DiedAt[i]))
	}
	t.add("deaths", strings.Join(deaths, ", "))
	if u := r.Resources; u != nil {
		t.add("processor", fmt.Sprintf("%.2f s user, %.2f s system", u.UserSeconds, u.SystemSeconds))
	}
	t.add("artifacts", strings.Join(r.Artifacts, ", "))
	for i := range r.Deliveries {
		t.add("delivery", deliveryLine(r.ID, &r.Deliveries[i]))
	}
	if r.Pinned {
		t.add("pinned", "yes")
	}
	for i := range r.ActionRecords {
		t.add("act", actionLine(&r.ActionRecords[i]))
	}
}

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
	var text recordText
	text.addRequest(rec, waiting)
	text.addWork(rec)
	if len(drawn.steps) > 0 {
		text = append(text, drawn.lines()...)
	}
	for _, t := range rec.Transitions {
		text.add("state", fmt.Sprintf("%s  %s (%s)", shownTime(&t.At), t.To, t.Cause))
	}
	return out.Line("%s", strings.Join(text, "\n"))
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
		entry := statefs.EntryName{ID: id, Place: d.Place, Kind: d.Kind}
		text += ": " + d.Error + "; fix the cause, then: jobdir outbox retry " + entry.String()
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
