package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/acts"
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// actPatience is how long a daemon may take to carry out what is asked about a step, so that who asks next finds the operation where that has
// brought it. It takes milliseconds.
const actPatience = 5 * time.Second

// actOptions are what a person says of a step.
type actOptions struct {
	ask    statefs.Ask
	step   string
	reason string
	by     string
	wait   waitFlag
	json   bool
}

// flags gives a command the flags of a request about a step.
func (o *actOptions) flags(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.reason, "reason", "", "why; it is kept in the record")
	cmd.Flags().StringVar(&o.by, "by", "", "who asks (default: your user name); a token says it too, and wins")
	if o.ask != statefs.Set {
		cmd.Flags().StringVar(&o.step, "step", "", "the step that is meant (default: the one at which the operation stands)")
		_ = cmd.RegisterFlagCompletionFunc("step", a.completeStep) // the flag is there
	}
}

// args are the particulars of the request.
func (o *actOptions) args() statefs.Args {
	by := o.by
	if by == "" {
		by = userName()
	}
	return statefs.Args{Step: o.step, By: by, Reason: o.reason}
}

// userName is the name of whoever types, "" when the system knows none.
func userName() string {
	if who, err := user.Current(); err == nil {
		return who.Username
	}
	return strconv.Itoa(os.Getuid())
}

// actCommand makes skip, approve and reject.
func (a *app) actCommand(ask statefs.Ask, short, long string) *cobra.Command {
	opts := actOptions{ask: ask}
	cmd := &cobra.Command{
		Use:   string(ask) + " ID...",
		Short: short,
		Long: long + `

Who asked, when and why is kept in the record. The request is a file in the storage directory: without a daemon it waits on disk
for the next one. An ID may be shortened to its end, such as r42 or 42.`,
		Example:           fmt.Sprintf("  jobdir %s r42 --reason 'the source has no such track'", ask),
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.act(cmd.Context(), conf, opts, args, nil)
		},
	}
	opts.flags(a, cmd)
	addWait(cmd, &opts.wait, "it was carried out")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) setCommand() *cobra.Command {
	opts := actOptions{ask: statefs.Set}
	cmd := &cobra.Command{
		Use:   "set ID NAME=VALUE...",
		Short: "Correct values of an operation that waits for a person",
		Long: `set corrects parameters (params.NAME=VALUE) and outputs of steps (steps.STEP.outputs.NAME=VALUE) of an operation with steps that waits
for a person or for its next attempt. They count from the next try on, which 'jobdir retry' begins. A parameter has the type that the
job gives it; an output is JSON, and what is no JSON is a text.

Who set what, when and why is kept in the record. Without a daemon the request waits on disk for the next one.`,
		Example:           "  jobdir set r42 params.path=/srv/other.mkv --reason 'moved'\n  jobdir set r42 steps.split.outputs.count=3",
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			pairs, err := parsePairs(args[1:])
			if err != nil {
				return err
			}
			if len(pairs) == 0 {
				return usagef("set: nothing to set is given: params.NAME=VALUE or steps.STEP.outputs.NAME=VALUE")
			}
			for name := range pairs {
				if _, ok := statefs.ParseValueName(name); !ok {
					return usagef("set: %q is no value: it is params.NAME or steps.STEP.outputs.NAME", name)
				}
			}
			return a.act(cmd.Context(), conf, opts, args[:1], pairs)
		},
	}
	opts.flags(a, cmd)
	addWait(cmd, &opts.wait, "it was carried out")
	jsonFlag(cmd, &opts.json)
	return cmd
}

// act asks for something about steps of operations. pairs are the values of a set.
func (a *app) act(ctx context.Context, conf *loaded, opts actOptions, texts []string, pairs map[string]string) error {
	var answers []*client.Answer
	show := func(id statefs.ID, answer *client.Answer, err error) error {
		if err != nil {
			return err
		}
		answers = append(answers, answer)
		if !opts.json {
			a.streams.say("%s", printable(answer.Message))
		}
		switch {
		case !opts.wait.given: // that it is on the disk is enough
		case answer.Pending:
			a.streams.say("%s is %s: the request was not carried out within %s, and stands", id, answer.State, opts.wait.atMost())
			return &codeError{code: exitTemporary}
		case !answer.Holds():
			a.streams.say("%s is %s: the request did not take effect; 'jobdir logs %s' says why", id, answer.State, id)
			return &codeError{code: exitFailure}
		}
		return nil
	}
	err := a.reach(ctx, conf, func(c *client.Client) error {
		return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
			args := opts.args()
			if err := remoteValues(ctx, c, id, pairs, &args); err != nil {
				return err
			}
			answer, err := c.Act(ctx, id, opts.ask, args, cmp.Or(opts.wait.atMost(), actPatience))
			return show(id, answer, err)
		})
	}, func(tree *statefs.Tree) error {
		a.streams.say("no daemon is running on %s: a request waits on disk until one is", tree.Dir())
		return resolveLocal(tree).each(texts, func(id statefs.ID) error {
			answer, err := actInTree(ctx, tree, id, opts.ask, opts.args(), pairs)
			if err == nil {
				answer.Pending = opts.wait.given
			}
			return show(id, answer, err)
		})
	})
	if opts.json {
		return errors.Join(err, a.streams.json(append([]*client.Answer{}, answers...)))
	}
	return err
}

// remoteValues gives the values of a set the types that the job declares.
func remoteValues(ctx context.Context, c *client.Client, id statefs.ID, pairs map[string]string, args *statefs.Args) error {
	if len(pairs) == 0 {
		return nil
	}
	op, err := c.Operation(ctx, id)
	if err != nil {
		return err
	}
	types := make(map[string]string)
	if job, err := c.Job(ctx, op.Group, op.Job); err == nil { // without it the daemon says what is wrong
		for _, p := range job.Params {
			types[p.Name] = p.Type
		}
	}
	return setValues(types, pairs, args)
}

// setValues turns text into values: a parameter by its type, an output as JSON or else as text.
func setValues(types map[string]string, pairs map[string]string, args *statefs.Args) error {
	args.Values = make(map[string]json.RawMessage)
	for text, value := range pairs {
		var typed any = value
		name, _ := statefs.ParseValueName(text) // the command has checked it
		switch {
		case name.Step != "" && json.Valid([]byte(value)):
			typed = json.RawMessage(value)
		case name.Step == "":
			var err error
			if typed, err = client.TypedValue(name.Name, types[name.Name], value); err != nil {
				return err
			}
		}
		raw, err := json.Marshal(typed)
		if err != nil {
			return usagef("%s: %w", text, err)
		}
		args.Values[text] = raw
	}
	return nil
}

// actInTree leaves a request about a step in the directory, when the record says that it means something.
func actInTree(ctx context.Context, tree *statefs.Tree, id statefs.ID, ask statefs.Ask, args statefs.Args, pairs map[string]string) (*client.Answer, error) {
	rec, err := tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return requestTree(ctx, tree, id, ask, nil) // a program that keeps it itself decides
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, id, err)
	}
	state, err := tree.State(id)
	if err != nil {
		return nil, err
	}
	def := definitionIn(tree, rec)
	if len(pairs) > 0 {
		types := make(map[string]string)
		if def != nil {
			for i := range def.Params {
				types[def.Params[i].Name] = string(def.Params[i].Type)
			}
		}
		if err := setValues(types, pairs, &args); err != nil {
			return nil, err
		}
	}
	if args, err = acts.Check(def, rec, state, ask, args); err != nil {
		return nil, &usageError{err}
	}
	line, err := args.JSON()
	if err != nil {
		return nil, &usageError{err}
	}
	if err := tree.Request(ctx, id, ask, line); err != nil {
		return nil, err
	}
	answer := &client.Answer{Success: true, ID: id, Action: ask, Step: args.Step, Message: requested(ask, id), State: state}
	if args.Step != "" {
		answer.Message += ", step " + args.Step
	}
	return answer, nil
}

// definitionIn reads the definition under which an operation was submitted, nil when it cannot be read.
func definitionIn(tree *statefs.Tree, rec *statefs.Record) *catalog.Definition {
	source, err := tree.Definition(rec.Definition)
	if err != nil {
		return nil
	}
	list, err := catalog.Parse("definitions/"+rec.Definition+".yaml", source)
	if err != nil || len(list) != 1 {
		return nil
	}
	return list[0]
}

// completeStep suggests the steps of the operation that is the first argument.
func (a *app) completeStep(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	conf, err := a.load(cmd)
	if err != nil || len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, stop := context.WithTimeout(cmd.Context(), completeWithin)
	defer stop()
	var found []string
	err = a.reach(ctx, conf, func(c *client.Client) error {
		id, err := resolveRemote(ctx, c).one(args[0])
		if err != nil {
			return err
		}
		op, err := c.Operation(ctx, id)
		if err == nil {
			for i := range op.Steps {
				found = append(found, cobra.CompletionWithDesc(op.Steps[i].Name, string(op.Steps[i].Status)))
			}
		}
		return err
	}, func(tree *statefs.Tree) error {
		id, err := resolveLocal(tree).one(args[0])
		if err != nil {
			return err
		}
		rec, err := tree.ReadRecord(id)
		if err == nil {
			for i := range rec.Steps {
				found = append(found, cobra.CompletionWithDesc(rec.Steps[i].Name, string(rec.Steps[i].Status)))
			}
		}
		return err
	})
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return slices.Clip(found), cobra.ShellCompDirectiveNoFileComp
}
