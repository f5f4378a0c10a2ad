package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type requestOptions struct {
	action   statefs.Action
	force    bool // for a cancel
	priority *int // for a prioritize; nil for the first place
	wait     waitFlag
	json     bool
	bulk     bulkOptions
}

// send sends the request to the daemon.
func (o *requestOptions) send(ctx context.Context, c *client.Client, id statefs.ID) (*client.Answer, error) {
	if o.action == statefs.Prioritize {
		return c.Prioritize(ctx, id, o.priority, o.wait.atMost())
	}
	return c.Request(ctx, id, o.action, o.wait.atMost())
}

// args returns the arguments of a request that is left in the directory.
func (o *requestOptions) args() json.RawMessage {
	if o.priority == nil {
		return nil
	}
	return fmt.Appendf(nil, `{"priority":%d}`, *o.priority)
}

// requestCommand makes pause, resume and cancel: one command with three names.
func (a *app) requestCommand(ask statefs.Action, short string) *cobra.Command {
	opts := requestOptions{action: ask}
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("%s ID... | %s --job JOB ...", ask, ask),
		Short: short,
		Long: short + `.

The request is a file in the storage directory, so it outlives both the daemon and this command: without a daemon it
waits on disk for the next one. An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one
live operation has.

Instead of IDs a filter chooses operations, those in a state that the request can change: the command prints how many
match, and requires a confirmation. That needs a daemon, and returns when the requests are on its disk.`,
		Example:           fmt.Sprintf("  jobdir %s r42\n  jobdir %s --job media/decode --since 2h", ask, ask),
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if opts.bulk.given() {
				return a.bulk(cmd.Context(), conf, string(ask), &opts.bulk, opts.json)
			}
			if opts.force {
				opts.action = statefs.ForceCancel
			}
			return a.request(cmd.Context(), conf, opts, args)
		},
	}
	if ask == statefs.Cancel {
		cmd.Flags().BoolVar(&opts.force, "force", false, "SIGKILL at once, without the grace period; also after a cancel")
	}
	opts.bulk.byFilter(cmd)
	addWait(cmd, &opts.wait, "it took effect")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) request(ctx context.Context, conf *loaded, opts requestOptions, texts []string) error {
	var answers []*client.Answer
	show := func(id statefs.ID, answer *client.Answer, err error) error {
		if opts.wait.given && opts.action.Cancels() && endedState(err) == statefs.Cancelled {
			answer, err = &client.Answer{
				Success: true, ID: id, Action: opts.action, State: statefs.Cancelled,
				Message:    "Operation '" + id.String() + "' is already cancelled",
				TookEffect: new(bool), Changed: new(bool),
			}, nil
		}
		if err != nil {
			return opts.wait.noEffect(err)
		}
		answers = append(answers, answer)
		if !opts.json {
			a.streams.notice("%s", answer.Message)
		}
		switch {
		case answer.Pending:
			a.streams.notice("%s is %s: the request did not take effect within %s, and stays pending", id,
				answer.State, opts.wait.atMost())
			return &codeError{code: exitTemporary}
		case opts.wait.given && answer.TookEffect != nil && !answer.InEffect():
			if answer.Changed == nil { // otherwise the message has the outcome
				a.streams.notice("%s is %s: the request did not take effect", id, answer.State)
			}
			return &codeError{code: exitFailure}
		}
		return nil
	}
	err := a.reach(ctx, conf, func(c *client.Client) error {
		return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
			answer, err := opts.send(ctx, c, id)
			return show(id, answer, err)
		})
	}, func(tree *statefs.Tree) error {
		a.streams.notice("no daemon is running on %s: a request waits on disk until one is", tree.Dir())
		if opts.wait.given {
			a.streams.notice("nothing takes effect before a daemon starts: leave out --wait")
		}
		return resolveLocal(tree).each(texts, func(id statefs.ID) error {
			answer, err := requestTree(ctx, tree, id, opts.action, opts.args())
			if err == nil && opts.wait.given {
				answer.Pending = true
			}
			return show(id, answer, err)
		})
	})
	if opts.json {
		return errors.Join(err, a.streams.json(append([]*client.Answer{}, answers...)))
	}
	return err
}

// requestTree leaves a request in the directory.
func requestTree(ctx context.Context, tree *statefs.Tree, id statefs.ID, ask statefs.Action,
	args json.RawMessage,
) (*client.Answer, error) {
	if err := tree.Request(ctx, id, ask, args); err != nil {
		return nil, err
	}
	state, err := tree.State(id)
	if err != nil {
		state = "" // it has just ended
	}
	return &client.Answer{Success: true, ID: id, Action: ask, Message: requested(ask, id), State: state}, nil
}

func requested(ask statefs.Action, id statefs.ID) string {
	words := ask.Label()
	return strings.ToUpper(words[:1]) + words[1:] + " requested for operation '" + id.String() + "'"
}
