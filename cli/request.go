package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/cli/backend"
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
		opts := &requestOptions{action: spec.Action, flags: cmd.Flags()}
		run := opts.request
		switch {
		case spec.Action == statefs.Retry:
			opts.retryFlags(a, cmd)
			run = opts.retry
		case spec.Action == statefs.Delete:
			run = deleteOperations
		case spec.Action == statefs.Set:
			cmd.Use, cmd.ValidArgsFunction = "set ID NAME=VALUE...", a.completeIDs(1)
			opts.stepFlags(a, cmd)
			run = opts.set
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
			cmd.Args = needsIDs
			cmd.Use += fmt.Sprintf(" | %s %s ...", spec.Action, by)
			opts.filter.addFlags(cmd, operationFilters, "IDs", "job", "print how many match")
		}
		jsonFlag(cmd)
		cmd.RunE = a.runs(func(ctx context.Context, s *session, args []string) error {
			if opts.filter.given() {
				return opts.filter.apply(ctx, s, string(opts.action))
			}
			return run(ctx, s, args)
		})
		list = append(list, cmd)
	}
	return list
}

// needsIDs checks that there are IDs, for a command that may have a filter instead.
func needsIDs(cmd *cobra.Command, args []string) error {
	if err := needs("an ID")(cmd, args); err != nil {
		return fmt.Errorf("%w, or a filter such as --status", err)
	}
	return nil
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
	filter           filter
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

// report prints the answer to a request, and returns an error if the command waits for an effect that did not occur.
func (o *requestOptions) report(s *session, id statefs.ID, answer *client.Answer) error {
	out := s.streams
	if !s.json {
		out.Notice("%s", term.Printable(answer.Message))
	}
	late, why := "did not take effect", ""
	if o.action.Spec().OnStep {
		late, why = "was not carried out", fmt.Sprintf("; 'jobdir logs %s' has the reason", id)
	}
	switch {
	case !o.wait.given: // return as soon as the request is on disk
	case answer.Pending:
		out.Notice("%s is %s: the request %s within %s, and stays pending", id, answer.State, late, o.wait.atMost())
		return exit.With(exit.Temporary)
	case (answer.TookEffect != nil || o.action.Spec().OnStep) && !answer.InEffect():
		if answer.Changed == nil { // otherwise the message has the outcome
			out.Notice("%s is %s: the request did not take effect%s", id, answer.State, why)
		}
		return exit.With(exit.Failure)
	}
	return nil
}

func (o *requestOptions) request(ctx context.Context, s *session, texts []string) error {
	request := &backend.Request{Action: o.action, Params: o.params(), Args: o.args(), Values: o.pairs, Wait: o.wait.atMost()}
	if o.force {
		request.Action = o.action.Spec().Force
	}
	b, err := s.open(ctx, waitsOnDisk)
	if err != nil {
		return err
	}
	if b.Away != "" && o.wait.given && !o.action.Spec().OnStep {
		s.streams.Notice("nothing takes effect before a daemon starts: leave out --wait")
	}
	answers := []*client.Answer{}
	ids, err := b.IDs(ctx, texts)
	if err == nil {
		err = each(ids, func(id statefs.ID) error {
			answer, err := b.Request(ctx, id, request)
			if o.wait.given && request.Action.Cancels() && endedState(err) == statefs.Cancelled {
				answer, err = &client.Answer{
					Success: true, ID: id, Action: request.Action, State: statefs.Cancelled,
					Message:    "Operation '" + id.String() + "' is already cancelled",
					TookEffect: new(bool), Changed: new(bool),
				}, nil
			}
			if err != nil {
				return o.wait.noEffect(err)
			}
			answers = append(answers, answer)
			return o.report(s, id, answer)
		})
	}
	if s.json {
		return errors.Join(err, s.streams.JSON(answers))
	}
	return err
}

// deleteOperations deletes operations, which only a daemon can.
func deleteOperations(ctx context.Context, s *session, texts []string) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	ids, err := backend.Remote(c).IDs(ctx, texts)
	if err != nil {
		return err
	}
	return each(ids, func(id statefs.ID) error {
		if err := c.Delete(ctx, id); err != nil {
			return err
		}
		s.streams.Notice("operation %s is deleted", id)
		return nil
	})
}

// stepFlags gives a command the flags of a request about a step.
func (o *requestOptions) stepFlags(a *app, cmd *cobra.Command) {
	o.flags.StringVar(&o.reason, "reason", "", "why; it is kept in the record")
	o.flags.StringVar(&o.by, "by", "", "who makes the request (default: your user name); the name of a token takes precedence")
	if o.action != statefs.Set {
		o.flags.StringVar(&o.step, "step", "", "the step (default: the current one)")
		_ = cmd.RegisterFlagCompletionFunc("step", a.completeSteps()) // the flag exists
	}
	if o.action != statefs.Retry {
		addWait(cmd, &o.wait, "it was carried out")
	}
}

// args returns the arguments of a request about a step.
func (o *requestOptions) args() statefs.Args {
	return statefs.Args{Step: o.step, By: cmp.Or(o.by, userName()), Reason: o.reason}
}

// userName returns the name of the user, "" if the system knows none.
func userName() string {
	if who, err := user.Current(); err == nil {
		return who.Username
	}
	return strconv.Itoa(os.Getuid())
}

func (o *requestOptions) set(ctx context.Context, s *session, args []string) (err error) {
	if o.pairs, err = parsePairs(args[1:]); err != nil {
		return err
	}
	if len(o.pairs) == 0 {
		return exit.Usagef("set: give params.NAME=VALUE or steps.STEP.outputs.NAME=VALUE")
	}
	for name := range o.pairs {
		if _, ok := statefs.ParseValueName(name); !ok {
			return exit.Usagef("set: %q is no value: it is params.NAME or steps.STEP.outputs.NAME", name)
		}
	}
	return o.request(ctx, s, args[:1])
}
