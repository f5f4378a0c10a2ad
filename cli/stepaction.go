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

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/statefs"
)

// stepActionTimeout is how long a daemon may take to carry out a request about a step, so that the next
// command sees its effect. It usually takes milliseconds.
const stepActionTimeout = 5 * time.Second

// stepFlags gives a command the flags of a request about a step.
func (o *requestOptions) stepFlags(a *app, cmd *cobra.Command) {
	o.flags.StringVar(&o.reason, "reason", "", "why; it is kept in the record")
	o.flags.StringVar(&o.by, "by", "", "who makes the request (default: your user name); the name of a token takes precedence")
	if o.action != statefs.Set {
		o.flags.StringVar(&o.step, "step", "", "the step (default: the current one)")
		_ = cmd.RegisterFlagCompletionFunc("step", a.completeStep) // the flag exists
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

func (a *app) set(ctx context.Context, conf *config.Loaded, opts *requestOptions, args []string) (err error) {
	if opts.pairs, err = parsePairs(args[1:]); err != nil {
		return err
	}
	if len(opts.pairs) == 0 {
		return exit.Usagef("set: give params.NAME=VALUE or steps.STEP.outputs.NAME=VALUE")
	}
	for name := range opts.pairs {
		if _, ok := statefs.ParseValueName(name); !ok {
			return exit.Usagef("set: %q is no value: it is params.NAME or steps.STEP.outputs.NAME", name)
		}
	}
	return a.request(ctx, conf, opts, args[:1])
}

// remoteValues gives the values of a set the types that the job declares.
func remoteValues(ctx context.Context, c *client.Client, id statefs.ID, pairs map[string]string,
	args *statefs.Args,
) error {
	if len(pairs) == 0 {
		return nil
	}
	op, err := c.Operation(ctx, id)
	if err != nil {
		return err
	}
	types := make(map[string]string)
	if job, err := c.Job(ctx, op.Group, op.Job); err == nil { // on an error the daemon reports the cause
		for _, p := range job.Params {
			types[p.Name] = p.Type
		}
	}
	return setValues(types, pairs, args)
}

// setValues parses texts into values: a parameter by its type, an output as JSON or else as text.
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
			return exit.Usagef("%s: %w", text, err)
		}
		args.Values[text] = raw
	}
	return nil
}

// stepActionInTree leaves a request about a step in the directory, if the record shows that it can have an
// effect.
func stepActionInTree(ctx context.Context, tree *statefs.Tree, id statefs.ID, ask statefs.Action, args statefs.Args,
	pairs map[string]string,
) (*client.Answer, error) {
	rec, err := tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return requestTree(ctx, tree, id, ask, nil) // the program that owns the foreign operation decides
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, id, err)
	}
	state, err := tree.State(id)
	if errors.Is(err, statefs.ErrNotLive) && rec.Status.Terminal() && ask != statefs.Retry {
		state, err = rec.Status, nil // refused as by a daemon
	}
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
		return nil, &exit.UsageError{Err: err}
	}
	line, err := args.JSON()
	if err != nil {
		return nil, &exit.UsageError{Err: err}
	}
	if err := tree.Request(ctx, id, ask, line); err != nil {
		return nil, err
	}
	answer := &client.Answer{
		Success: true, ID: id, Action: ask, Step: args.Step,
		Message: ask.Requested(id), State: state,
	}
	if args.Step != "" {
		answer.Message += ", step " + args.Step
	}
	return answer, nil
}

// definitionIn reads the definition under which an operation was submitted, or nil if it cannot be read.
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
