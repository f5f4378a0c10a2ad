package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show what is known of an operation, live or ended",
		Long:  `show prints the record of an operation. Without a daemon it reads it from the storage directory.`,
		Args:  exactlyOne("the ID of an operation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.show(cmd.Context(), conf, args[0], asJSON)
		},
		ValidArgsFunction: a.completeIDs(1),
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) show(ctx context.Context, conf *loaded, text string, asJSON bool) error {
	var raw json.RawMessage
	var failed *steps.Step
	var output []string
	err := a.reach(ctx, conf, func(c *client.Client) error {
		id, err := resolveRemote(ctx, c).one(text)
		if err != nil {
			return err
		}
		op, err := c.Operation(ctx, id)
		if err != nil {
			return err
		}
		raw = op.Raw
		var list []steps.Step
		for i := range op.Steps {
			list = append(list, op.Steps[i].Step)
		}
		if failed = failedStep(list); failed != nil && !asJSON {
			output = remoteOutput(ctx, c, id, failed)
		}
		return nil
	}, func(tree *statefs.Tree) error {
		id, err := resolveLocal(tree).one(text)
		if err != nil {
			return err
		}
		rec, err := statefs.ReadSubmitted(tree, id)
		if errors.Is(err, fs.ErrNotExist) {
			return notFoundf("operation '%s' has no record in %s", id, tree.Dir())
		}
		if err != nil {
			return err
		}
		if state, err := tree.State(id); err == nil && !rec.Status.Terminal() {
			rec.Status = state // the marker has the state
		}
		tree.Freshen(rec)
		if failed = failedStep(rec.Steps); failed != nil {
			output = localOutput(tree, id, failed)
		}
		raw, err = json.Marshal(shownRecord(tree, rec))
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return a.streams.json(raw)
	}
	var rec struct {
		statefs.Record
		Steps     []steps.View       `json:"steps"`
		Attention *statefs.Attention `json:"attention"`
		Problem   string             `json:"problem"`
		Waiting   *statefs.Waiting   `json:"waiting"`
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return fmt.Errorf("show %s: %w", text, err)
	}
	if rec.Problem != "" {
		return fmt.Errorf("show %s: %s", rec.ID, printable(rec.Problem))
	}
	view := &stepsView{
		id: rec.ID, steps: rec.Steps, acts: rec.ActionRecords, attention: rec.Attention, output: output,
		colour: coloured(a.streams.Out),
	}
	if failed != nil {
		view.failed = failed.Name
	}
	return a.showRecord(&rec.Record, rec.Waiting, view)
}

// shownRecord adds to a record what a daemon would add.
func shownRecord(tree *statefs.Tree, rec *statefs.Record) any {
	var graph steps.Graph
	if len(rec.Steps) > 0 {
		if def := definitionIn(tree, rec); def != nil {
			graph = def.Graph()
		}
	}
	state := rec.Status
	if rec.Trailing {
		state = statefs.Trailing
	}
	return struct {
		*statefs.Record
		Steps     []steps.View       `json:"steps,omitempty"`
		Attention *statefs.Attention `json:"attention,omitempty"`
	}{rec, steps.Views(rec.Steps, graph, time.Now()), statefs.AttentionOf(rec.ID, state, rec)}
}

// showRecord prints a record for people: its fields, why it waits, and its steps.
func (a *app) showRecord(rec *statefs.Record, waiting *statefs.Waiting, drawn *stepsView) error {
	var lines [][2]string
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, [2]string{name, printable(value)})
		}
	}
	add("id", rec.ID.String())
	add("job", strings.Trim(rec.Group+"/"+rec.Job, "/"))
	status := string(rec.Status)
	if rec.Result != "" {
		status += ", " + string(rec.Result)
	}
	if rec.Trailing {
		status += "; optional steps still run"
	}
	add("status", status)
	add("reason", rec.Reason)
	if waiting != nil {
		text := waiting.Sentence()
		if waiting.Position > 0 {
			text += fmt.Sprintf(", position %d in its lane", waiting.Position)
		}
		add("waiting", text)
	}
	add("stalled", shownTime(rec.StalledAt))
	if rec.Error != nil {
		add("error", rec.Error.Code+": "+rec.Error.Message)
	}
	if rec.ExitCode != nil {
		add("exit code", strconv.Itoa(*rec.ExitCode))
	}
	add("signal", rec.Signal)
	add("params", string(rec.Params))
	if len(rec.Corrected) > 0 {
		if now, err := rec.EffectiveParams(); err == nil {
			add("corrected", string(now))
		}
	}
	add("tags", strings.Join(rec.Tags, ", "))
	add("key", rec.Key)
	add("lane", rec.Lane)
	add("limits", strings.Join(rec.Limits, ", "))
	if rec.Priority != 0 {
		add("priority", strconv.Itoa(rec.Priority))
	}
	if len(rec.After) > 0 {
		after := make([]string, len(rec.After))
		for i, id := range rec.After {
			after[i] = id.String()
		}
		add("after", strings.Join(after, ", ")+" ("+rec.Require+")")
	}
	add("not before", shownTime(rec.NotBefore))
	if rec.RetryOf != nil {
		add("retry of", rec.RetryOf.String())
	}
	if rec.Then != nil {
		add("then", rec.Then.ID.String()+rec.Then.Error)
	}
	add("created by", rec.CreatedBy)
	add("created", shownTime(&rec.CreatedAt))
	add("started", shownTime(rec.StartedAt))
	add("finished", shownTime(rec.FinishedAt))
	if rec.FinishedSeq > 0 {
		add("end number", strconv.FormatUint(rec.FinishedSeq, 10))
	}
	if rec.PausedSeconds > 0 {
		add("paused", fmt.Sprintf("%.3f s", rec.PausedSeconds))
	}
	add("alive", shownTime(rec.HeartbeatAt))
	if p := rec.Progress; p != nil {
		add("progress", shownProgress(p))
	}
	if rec.Processed+rec.FailedN > 0 {
		add("items", fmt.Sprintf("%d processed, %d failed", rec.Processed, rec.FailedN))
	}
	if len(rec.Steps) > 0 { // attempts count for the current step
		add("runs", fmt.Sprintf("%d of steps, %d were interrupted, %d were rescued", rec.Run, rec.Interrupts, rec.Rescues))
	} else {
		add("runs", fmt.Sprintf("%d, of which %d ended by themselves, %d were interrupted, %d were rescued", rec.Starts,
			rec.Attempts, rec.Interrupts, rec.Rescues))
	}
	if n := len(rec.DiedAt); n > 0 {
		times := make([]string, n)
		for i := range rec.DiedAt {
			times[i] = shownTime(&rec.DiedAt[i])
		}
		add("deaths", strings.Join(times, ", "))
	}
	if u := rec.Resources; u != nil {
		add("processor", fmt.Sprintf("%.2f s user, %.2f s system", u.UserSeconds, u.SystemSeconds))
	}
	add("artifacts", strings.Join(rec.Artifacts, ", "))
	for i := range rec.Deliveries {
		add("delivery", deliveryLine(rec.ID, &rec.Deliveries[i]))
	}
	if rec.Pinned {
		add("pinned", "yes")
	}
	for i := range rec.ActionRecords {
		add("act", actionLine(&rec.ActionRecords[i]))
	}
	if err := a.printPairs(lines); err != nil {
		return err
	}
	lines = nil
	if len(drawn.steps) > 0 {
		for _, line := range drawn.lines() {
			if err := a.streams.line("%s", line); err != nil {
				return err
			}
		}
	}
	for _, t := range rec.Transitions {
		add("state", fmt.Sprintf("%s  %s (%s)", shownTime(&t.At), t.To, t.Cause))
	}
	return a.printPairs(lines)
}

func (a *app) printPairs(lines [][2]string) error {
	for _, line := range lines {
		if err := a.streams.line("%-11s %s", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

// shownProgress formats the progress of work. For an operation with steps it is the number of finished steps,
// the progress of the running step, and the percentage of the whole.
func shownProgress(p *statefs.Progress) string {
	shown := cmp.Or(progressCount(p.Done, p.Total, p.Phase), "0")
	if p.Step == nil {
		return shown
	}
	shown += ", " + strings.TrimSpace(p.Step.Name+" "+progressCount(p.Step.Done, p.Step.Total, p.Step.Phase))
	if fraction, known := p.Fraction(); known {
		shown += fmt.Sprintf(" (%d%%)", int(fraction*100))
	}
	return shown
}

func progressCount(done int64, total *int64, phase string) string {
	shown := strconv.FormatInt(done, 10)
	switch {
	case total != nil:
		shown = fmt.Sprintf("%d/%d", done, *total)
	case done == 0 && phase == "":
		return ""
	}
	return strings.TrimSpace(shown + " " + phase)
}

func shownTime(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.Local().Format("2006-01-02 15:04:05.000")
}
