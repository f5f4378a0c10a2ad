package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) lsCommand() *cobra.Command {
	var attention bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the live operations",
		Long: `ls lists the operations that have not ended, oldest first, and why an operation waits. Without a daemon it
reads the storage directory: the markers have the state, as in 'ls STORAGE/jobs'.

With --needs-attention it lists the operations that wait for a person, failed_manual and waiting_approval: the step, the
error, and the command that usually continues the operation.`,
		Args: noArguments,
		RunE: a.opens(readFromDirectory, func(ctx context.Context, s *session, b *backend.Backend, _ []string) error {
			return s.ls(ctx, b, attention)
		}),
	}
	cmd.Flags().BoolVar(&attention, "needs-attention", false,
		"only operations that wait for a person, with the step, the error and the command that continues them")
	jsonFlag(cmd)
	return cmd
}

// listRow is one line of ls, the same with and without a daemon.
type listRow struct {
	ID       statefs.ID        `json:"id"`
	State    statefs.State     `json:"state"`
	Since    *time.Time        `json:"since"`
	Progress *statefs.Progress `json:"progress"`
	// Stalled is when the daemon detected that the work gives no sign of life.
	Stalled *time.Time `json:"stalled_at,omitempty"`
	Foreign bool       `json:"foreign"`
	// Waiting is why it does not run; only a daemon knows it.
	Waiting *statefs.Waiting `json:"waiting,omitempty"`
	// Reason is why it waits for a person; Attention adds the step and the remedy.
	Reason    string             `json:"reason,omitempty"`
	Attention *statefs.Attention `json:"attention,omitempty"`
}

func (s *session) ls(ctx context.Context, b *backend.Backend, attention bool) error {
	operations, err := b.Live(ctx, attention)
	if err != nil {
		return err
	}
	var all []listRow
	var rows [][]string
	for i := range operations {
		op := &operations[i]
		l := listRow{
			ID: op.ID, State: op.State, Progress: op.Progress, Foreign: op.Foreign, Stalled: op.StalledAt,
			Waiting: op.Waiting, Attention: op.Attention,
		}
		if op.State.NeedsPerson() {
			if l.Reason = op.Reason; op.Error != nil {
				l.Reason = cmp.Or(op.Error.Message, op.Reason)
			}
		}
		if since := op.Since(); !since.IsZero() {
			l.Since = &since
		}
		all = append(all, l)
		row := []string{l.ID.String(), l.state(), l.since()}
		if attention {
			row = append(row, l.attention()...)
		} else {
			row = append(row, l.progress())
		}
		rows = append(rows, row)
	}
	head := []string{"ID", "STATE", "SINCE", "PROGRESS"}
	if attention {
		head = []string{"ID", "STATE", "SINCE", "STEP", "ERROR", "HELPS"}
	}
	return printList(s, "operations", all, head, rows)
}

func (l *listRow) state() string {
	if l.Foreign {
		return string(l.State) + " (foreign)"
	}
	if l.Stalled != nil && l.State == statefs.Running {
		return string(l.State) + " (stalled)"
	}
	return string(l.State)
}

func (l *listRow) since() string {
	if l.Since == nil {
		return "-"
	}
	return term.Time(*l.Since)
}

// attention returns why an operation waits for a person: the step, the error, and the command that helps.
func (l *listRow) attention() []string {
	a := l.Attention
	if a == nil {
		a = statefs.AttentionOf(l.ID, l.State, nil)
	}
	step, why := "-", term.Printable(a.Message)
	if a.Step != "" {
		step = fmt.Sprintf("%d/%d %s", a.Number, a.Total, term.Printable(a.Step))
	}
	if a.ErrorCode != "" {
		why = term.Printable(a.ErrorCode) + ": " + why
	}
	return []string{step, why, a.Commands[0]}
}

func (l *listRow) progress() string {
	if a := l.Attention; a != nil && a.Optional && l.Progress != nil {
		return term.Printable(term.Progress(l.Progress) + "; " + a.Place() + ": " + a.Message)
	}
	if a := l.Attention; a != nil && a.Step != "" {
		return term.Printable(a.Place() + ": " + a.Message)
	}
	if l.Reason != "" {
		return term.Printable(l.Reason)
	}
	if l.Waiting != nil && l.State != statefs.Running {
		return term.Printable(l.Waiting.Sentence())
	}
	if l.Progress == nil {
		return "-"
	}
	return term.Printable(term.Progress(l.Progress))
}
