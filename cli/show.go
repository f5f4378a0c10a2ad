package cli

import (
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
	err := a.reach(ctx, conf, func(c *client.Client) error {
		id, err := resolveRecent(ctx, c).one(text)
		if err != nil {
			return err
		}
		op, err := c.Operation(ctx, id)
		if err == nil {
			raw = op.Raw
		}
		return err
	}, func(tree *statefs.Tree) error {
		id, err := resolveLocalRecent(tree).one(text)
		if err != nil {
			return err
		}
		rec, err := tree.ReadRecord(id)
		if errors.Is(err, fs.ErrNotExist) {
			return notFoundf("operation '%s' has no record in %s", id, tree.Dir())
		}
		if err != nil {
			return err
		}
		if state, err := tree.State(id); err == nil && !rec.Status.Terminal() {
			rec.Status = state // the marker says it
		}
		tree.Freshen(rec)
		raw, err = json.Marshal(rec)
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
		Problem string           `json:"problem"`
		Waiting *statefs.Waiting `json:"waiting"`
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return fmt.Errorf("show %s: %w", text, err)
	}
	if rec.Problem != "" {
		return fmt.Errorf("show %s: %s", rec.ID, printable(rec.Problem))
	}
	return a.showRecord(&rec.Record, rec.Waiting)
}

// showRecord prints a record for people, and why it waits.
func (a *app) showRecord(rec *statefs.Record, waiting *statefs.Waiting) error {
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
	add("runs", fmt.Sprintf("%d, of which %d ended by themselves, %d were interrupted, %d were rescued", rec.Starts, rec.Attempts, rec.Interrupts, rec.Rescues))
	if u := rec.Resources; u != nil {
		add("processor", fmt.Sprintf("%.2f s user, %.2f s system", u.UserSeconds, u.SystemSeconds))
	}
	add("artifacts", strings.Join(rec.Artifacts, ", "))
	if rec.Pinned {
		add("pinned", "yes")
	}
	for _, t := range rec.Transitions {
		add("state", fmt.Sprintf("%s  %s (%s)", shownTime(&t.At), t.To, t.Cause))
	}
	for _, line := range lines {
		if err := a.streams.line("%-11s %s", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

func shownProgress(p *statefs.Progress) string {
	shown := strconv.FormatInt(p.Done, 10)
	if p.Total != nil {
		shown = fmt.Sprintf("%d/%d", p.Done, *p.Total)
	}
	return strings.TrimSpace(shown + " " + p.Phase)
}

func shownTime(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.Local().Format("2006-01-02 15:04:05.000")
}
