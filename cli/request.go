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
	ask      statefs.Ask
	priority *int // of a prioritize, nil for the first place
	wait     waitFlag
	json     bool
	bulk     bulkOptions
}

// send asks the daemon.
func (o *requestOptions) send(ctx context.Context, c *client.Client, id statefs.ID) (*client.Answer, error) {
	if o.ask == statefs.Prioritize {
		return c.Prioritize(ctx, id, o.priority, o.wait.atMost())
	}
	return c.Request(ctx, id, o.ask, o.wait.atMost())
}

// args are the particulars of a request that is left in the directory.
func (o *requestOptions) args() json.RawMessage {
	if o.priority == nil {
		return nil
	}
	return fmt.Appendf(nil, `{"priority":%d}`, *o.priority)
}

// requestCommand makes pause, resume and cancel, which are one command with three names.
func (a *app) requestCommand(ask statefs.Ask, short string) *cobra.Command {
	opts := requestOptions{ask: ask}
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("%s ID... | %s --job JOB ...", ask, ask),
		Short: short,
		Long: short + `.

The request is a file in the storage directory, so it outlives both the daemon and this command: without a daemon it
waits on disk for the next one. An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one
live operation has.

Instead of IDs a filter chooses operations, all for which it means something: how many match is said first, and a
question asked. That needs a daemon, and returns when the requests are on its disk.`,
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
			return a.request(cmd.Context(), conf, opts, args)
		},
	}
	opts.bulk.byFilter(cmd)
	addWait(cmd, &opts.wait, "it took effect")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) request(ctx context.Context, conf *loaded, opts requestOptions, texts []string) error {
	var answers []*client.Answer
	show := func(id statefs.ID, answer *client.Answer, err error) error {
		if err != nil {
			return err
		}
		answers = append(answers, answer)
		if !opts.json {
			a.streams.say("%s", answer.Message)
		}
		switch {
		case answer.Pending:
			a.streams.say("%s is %s: the request did not take effect within %s, and stands", id, answer.State, opts.wait.atMost())
			return &codeError{code: exitTemporary}
		case opts.wait.given && answer.TookEffect != nil && !answer.Holds():
			a.streams.say("%s is %s: the request did not take effect", id, answer.State)
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
		a.streams.say("no daemon is running on %s: a request waits on disk until one is", tree.Dir())
		if opts.wait.given {
			a.streams.say("--wait has no meaning then: nothing takes effect before")
		}
		return resolveLocal(tree).each(texts, func(id statefs.ID) error {
			answer, err := requestTree(ctx, tree, id, opts.ask, opts.args())
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
func requestTree(ctx context.Context, tree *statefs.Tree, id statefs.ID, ask statefs.Ask, args json.RawMessage) (*client.Answer, error) {
	if err := tree.Request(ctx, id, ask, args); err != nil {
		return nil, err
	}
	state, err := tree.State(id)
	if err != nil {
		state = "" // it ended in this moment
	}
	return &client.Answer{Success: true, ID: id, Action: ask, Message: requested(ask, id), State: state}, nil
}

func requested(ask statefs.Ask, id statefs.ID) string {
	return strings.ToUpper(string(ask[:1])) + string(ask[1:]) + " requested for operation '" + id.String() + "'"
}
