package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// actionCommands makes the commands of the actions on operations, from the table of actions.
func (a *app) actionCommands() (list []*cobra.Command) {
	for _, spec := range statefs.ActionSpecs() {
		if spec.Short == "" {
			continue
		}
		cmd := &cobra.Command{
			Use: string(spec.Action) + " ID...", Short: spec.Short, Long: spec.Long, Example: spec.Example,
			Args: needs("an ID"), ValidArgsFunction: a.completeIDs(0),
		}
		opts, run := &requestOptions{action: spec.Action, flags: cmd.Flags()}, a.request
		switch {
		case spec.Action == statefs.Retry:
			opts.retryFlags(a, cmd)
			run = a.retry
		case spec.Action == statefs.Delete:
			run = a.delete
		case spec.Action == statefs.Set:
			cmd.Use, cmd.ValidArgsFunction = "set ID NAME=VALUE...", a.completeIDs(1)
			opts.stepFlags(a, cmd)
			run = a.set
		case spec.OnStep:
			opts.stepFlags(a, cmd)
			cmd.Example = fmt.Sprintf("  jobdir %s r42 --reason 'the source has no such track'", spec.Action)
			cmd.Long += stepHelp
		default:
			opts.requestFlags(cmd, spec)
		}
		if spec.Bulk {
			by := "--job JOB"
			if spec.OnEnded {
				by = "--status STATUS"
			}
			cmd.Use += fmt.Sprintf(" | %s %s ...", spec.Action, by)
			opts.bulk.byFilter(cmd)
		}
		jsonFlag(cmd, &opts.json)
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if opts.bulk.given() {
				return a.bulk(cmd.Context(), conf, string(spec.Action), &opts.bulk, opts.json)
			}
			return run(cmd.Context(), conf, opts, args)
		}
		list = append(list, cmd)
	}
	return list
}

const (
	requestHelp = `

The request is a file in the storage directory, so it outlives both the daemon and this command: without a daemon it
waits on disk for the next one. An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one
live operation has.

Instead of IDs a filter chooses operations, those in a state that the request can change: the command prints how many
match, and requires a confirmation. That needs a daemon, and returns when the requests are on its disk.`
	stepHelp = `

The record keeps who made the request, when and why. The request is a file in the storage directory: without a daemon
it waits on disk for the next one. An ID may be shortened to its end, such as r42 or 42.`
)

// requestOptions are the options of the commands of all actions.
type requestOptions struct {
	action           statefs.Action
	flags            *pflag.FlagSet
	force            bool // for an action that can be forced
	step, reason, by string
	pairs            map[string]string // the values of a set
	failedItems      bool              // for a retry
	wait             waitFlag
	json             bool
	bulk             bulkOptions
}

// requestFlags gives a command the flags of an action that concerns no step.
func (o *requestOptions) requestFlags(cmd *cobra.Command, spec *statefs.ActionSpec) {
	if spec.Bulk {
		cmd.Long = cmp.Or(cmd.Long, cmd.Short+".") + requestHelp
		cmd.Example = fmt.Sprintf("  jobdir %s r42\n  jobdir %s --job media/decode --since 2h", spec.Action, spec.Action)
	}
	if spec.Force != "" {
		o.flags.BoolVar(&o.force, "force", false, "SIGKILL at once, without the grace period; also after a cancel")
	}
	for _, param := range spec.Params {
		o.flags.Int(param.Name, 0, param.Flag)
	}
	addWait(cmd, &o.wait, "it took effect")
}

// params returns the parameters that the command line has.
func (o *requestOptions) params() (list []client.Arg) {
	for _, param := range o.action.Spec().Params {
		if value, err := o.flags.GetInt(param.Name); err == nil && o.flags.Changed(param.Name) {
			list = append(list, client.Arg{Name: param.Name, Value: value})
		}
	}
	return list
}

// send sends the request to the daemon.
func (o *requestOptions) send(ctx context.Context, c *client.Client, id statefs.ID) (*client.Answer, error) {
	if !o.action.Spec().OnStep {
		return c.Request(ctx, id, o.action, o.wait.atMost(), o.params()...)
	}
	args := o.args()
	if err := remoteValues(ctx, c, id, o.pairs, &args); err != nil {
		return nil, err
	}
	return c.StepAction(ctx, id, o.action, args, cmp.Or(o.wait.atMost(), stepActionTimeout))
}

// leave leaves the request in the directory.
func (o *requestOptions) leave(ctx context.Context, tree *statefs.Tree, id statefs.ID) (*client.Answer, error) {
	if o.action.Spec().OnStep {
		return stepActionInTree(ctx, tree, id, o.action, o.args(), o.pairs)
	}
	object := make(map[string]int)
	for _, param := range o.params() {
		object[param.Name] = param.Value
	}
	if len(object) == 0 {
		return requestTree(ctx, tree, id, o.action, nil)
	}
	args, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return requestTree(ctx, tree, id, o.action, args)
}

// report prints the answer to a request, and returns an error if the command waits for an effect that did not occur.
func (o *requestOptions) report(a *app, id statefs.ID, answer *client.Answer) error {
	if !o.json {
		a.streams.Notice("%s", term.Printable(answer.Message))
	}
	late, why := "did not take effect", ""
	if o.action.Spec().OnStep {
		late, why = "was not carried out", fmt.Sprintf("; 'jobdir logs %s' has the reason", id)
	}
	switch {
	case !o.wait.given: // return as soon as the request is on disk
	case answer.Pending:
		a.streams.Notice("%s is %s: the request %s within %s, and stays pending", id, answer.State, late, o.wait.atMost())
		return exit.With(exit.Temporary)
	case (answer.TookEffect != nil || o.action.Spec().OnStep) && !answer.InEffect():
		if answer.Changed == nil { // otherwise the message has the outcome
			a.streams.Notice("%s is %s: the request did not take effect%s", id, answer.State, why)
		}
		return exit.With(exit.Failure)
	}
	return nil
}

func (a *app) request(ctx context.Context, conf *config.Loaded, opts *requestOptions, texts []string) error {
	if opts.force {
		opts.action = opts.action.Spec().Force
	}
	answers := []*client.Answer{}
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
		return opts.report(a, id, answer)
	}
	err := a.reach(ctx, conf, func(c *client.Client) error {
		return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
			answer, err := opts.send(ctx, c, id)
			return show(id, answer, err)
		})
	}, func(tree *statefs.Tree) error {
		a.streams.Notice("no daemon is running on %s: a request waits on disk until one is", tree.Dir())
		if opts.wait.given && !opts.action.Spec().OnStep {
			a.streams.Notice("nothing takes effect before a daemon starts: leave out --wait")
		}
		return resolveLocal(tree).each(texts, func(id statefs.ID) error {
			answer, err := opts.leave(ctx, tree, id)
			if err == nil {
				answer.Pending = opts.wait.given
			}
			return show(id, answer, err)
		})
	})
	if opts.json {
		return errors.Join(err, a.streams.JSON(answers))
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
	return &client.Answer{Success: true, ID: id, Action: ask, Message: ask.Requested(id), State: state}, nil
}

// delete deletes operations, which only a daemon can.
func (a *app) delete(ctx context.Context, conf *config.Loaded, _ *requestOptions, texts []string) error {
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
		if err := c.Delete(ctx, id); err != nil {
			return err
		}
		a.streams.Notice("operation %s is deleted", id)
		return nil
	})
}
