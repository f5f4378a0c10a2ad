package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

type submitOptions struct {
	params         string
	priority       int
	delay          string
	notBefore      string
	after          []string
	require        string
	tags           []string
	key            string
	idempotencyKey string
	json           bool
}

func (a *app) submitCommand() *cobra.Command {
	var opts submitOptions
	cmd := &cobra.Command{
		Use:   "submit GROUP/JOB [NAME=VALUE...] | submit -",
		Short: "Start operations without waiting for them, and print their IDs",
		Long: `submit starts an operation and prints its ID once it is as durable as the storage promises. If an equal one
is live, its ID is printed and no new one is made, unless the job has another setting.

"submit -" reads JSON from stdin: one object {"job": "group/name", "params": {...}, "priority": 5, ...} with the
options by their names, or an array of at most 10000 of them, of which all or none are accepted.

Without a daemon the submission is left in the folder new/ of the storage, where the next daemon finds it.`,
		Example:           "  jobdir submit files/checksum path=. --priority 5\n  jobdir submit - <requests.json",
		Args:              needs("GROUP/JOB, or -"),
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.submit(cmd.Context(), conf, opts, cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.params, "params", "", "the parameters as a JSON object, in place of NAME=VALUE")
	flags.IntVar(&opts.priority, "priority", 0, "higher ones start first; default that of the job")
	flags.StringVar(&opts.delay, "delay", "", "do not start before this time has passed (90s, 1h30m, 2d)")
	flags.StringVar(&opts.notBefore, "not-before", "", "do not start before this time (2026-11-23T09:00:00+01:00)")
	flags.StringSliceVar(&opts.after, "after", nil,
		"ID of an operation to wait for, also shortened as r42; may be repeated")
	flags.StringVar(&opts.require, "require", "", "what the end of those must be: success (default) or end")
	flags.StringSliceVar(&opts.tags, "tag", nil, "a tag beside those of the job; may be repeated")
	flags.StringVar(&opts.key, "key", "", "the key in place of that of the job; an empty one is none")
	flags.StringVar(&opts.idempotencyKey, "idempotency-key", "",
		"a name of this submit: a repetition with the same name returns the same operation")
	jsonFlag(cmd, &opts.json)
	_ = cmd.RegisterFlagCompletionFunc("after", a.completeIDs(0)) // the flag exists
	return cmd
}

func (a *app) submit(ctx context.Context, conf *config.Loaded, opts submitOptions, cmd *cobra.Command, args []string) error {
	if args[0] == "-" {
		return a.submitInput(ctx, conf, opts, args)
	}
	members, err := opts.members(cmd)
	if err != nil {
		return err
	}
	members["job"] = args[0]
	group, job, ok := strings.Cut(args[0], "/")
	if !ok || group == "" || job == "" {
		return exit.Usagef("%q is not a job: give GROUP/JOB; 'jobdir jobs' lists the jobs", args[0])
	}
	pairs, err := parsePairs(args[1:])
	if err != nil {
		return err
	}
	if opts.params != "" && len(pairs) > 0 {
		return exit.Usagef("give the parameters as NAME=VALUE or with --params, not both")
	}
	return a.reach(ctx, conf, func(c *client.Client) error {
		if err := opts.resolveAfter(resolveRemote(ctx, c), members); err != nil {
			return err
		}
		if opts.params == "" {
			typed, err := c.TypedParams(ctx, group, job, pairs)
			if err != nil {
				return fmt.Errorf("start %s: %w", args[0], err)
			}
			members["params"] = typed
		}
		return a.submitTo(ctx, c, opts, members)
	}, func(tree *statefs.Tree) error {
		if err := opts.resolveAfter(resolveLocal(tree), members); err != nil {
			return err
		}
		if opts.params == "" && len(pairs) > 0 {
			if members["params"], err = a.bindLocally(conf, group, job, pairs); err != nil {
				return err
			}
		}
		return a.leave(tree, opts, members)
	})
}

// members returns the given options by their names in JSON.
func (o *submitOptions) members(cmd *cobra.Command) (map[string]any, error) {
	members := map[string]any{}
	for flag, value := range map[string]any{
		"priority": o.priority, "delay": o.delay, "not-before": o.notBefore, "after": o.after, "require": o.require,
		"tag": o.tags, "key": o.key,
		"idempotency-key": o.idempotencyKey,
	} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		name := strings.ReplaceAll(flag, "-", "_")
		if flag == "tag" {
			name = "tags"
		}
		members[name] = value
	}
	if o.notBefore != "" {
		if _, err := time.Parse(time.RFC3339, o.notBefore); err != nil {
			return nil, exit.Usagef("--not-before %q is no time such as 2026-11-23T09:00:00+01:00", o.notBefore)
		}
	}
	if o.params == "" {
		return members, nil
	}
	if !json.Valid([]byte(o.params)) {
		return nil, exit.Usagef("--params is not JSON: %s", o.params)
	}
	members["params"] = json.RawMessage(o.params)
	return members, nil
}

// resolveAfter replaces shortened IDs of --after with whole IDs.
func (o *submitOptions) resolveAfter(ids *resolver, members map[string]any) error {
	if len(o.after) == 0 {
		return nil
	}
	all, err := ids.all(o.after)
	if err != nil {
		return fmt.Errorf("--after: %w", err)
	}
	members["after"] = all
	return nil
}

// submitInput submits the operations that stdin describes.
func (a *app) submitInput(ctx context.Context, conf *config.Loaded, opts submitOptions, args []string) error {
	if len(args) > 1 {
		return exit.Usagef("submit - reads everything from stdin")
	}
	data, err := io.ReadAll(io.LimitReader(a.streams.In, statefs.MaxSubmission+1))
	if err != nil {
		return fmt.Errorf("read stdin: %w", err)
	}
	if len(data) > statefs.MaxSubmission {
		return exit.Usagef("stdin has more than %d bytes", statefs.MaxSubmission)
	}
	if !json.Valid(data) {
		return exit.Usagef("stdin is not JSON: give one object, or an array of them, as in [{\"job\": \"group/name\", \"params\": {}}]")
	}
	return a.reach(ctx, conf, func(c *client.Client) error {
		return a.submitTo(ctx, c, opts, json.RawMessage(data))
	}, func(tree *statefs.Tree) error {
		return a.leave(tree, opts, json.RawMessage(data))
	})
}

// submitTo submits to a daemon and prints the result.
func (a *app) submitTo(ctx context.Context, c *client.Client, opts submitOptions, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	submitted, err := c.SubmitJSON(ctx, data)
	if err != nil {
		return err
	}
	for _, one := range submitted {
		if !one.Created {
			a.streams.Notice("%s is %s already and does the same: nothing new was made", one.ID, one.State)
		}
		if opts.json {
			err = errors.Join(err, a.streams.JSON(one.Raw))
		} else {
			err = errors.Join(err, a.streams.Line("%s", one.ID))
		}
	}
	return err
}

// leave puts a submission into the storage for the next daemon.
func (a *app) leave(tree *statefs.Tree, opts submitOptions, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	// Refuse malformed input now: the next daemon would have no user to report it to.
	if submit.IsList(data) {
		_, err = submit.ParseList(data)
	} else {
		_, err = submit.ParseEntry(data)
	}
	if err != nil {
		return exit.Usagef("%w", err)
	}
	name, err := tree.PutSubmission(data)
	if err != nil {
		return err
	}
	a.streams.Notice("no daemon is running on %s: the submission waits in new/; the next daemon answers it with the file %s.accepted or %s.rejected", tree.Dir(), name, name)
	if opts.json {
		return a.streams.JSON(map[string]string{"submission": name})
	}
	return nil
}

// bindLocally gives text parameters the types of the job in the definition folders.
func (a *app) bindLocally(conf *config.Loaded, group, job string, pairs map[string]string) (json.RawMessage, error) {
	jobs := catalog.New(catalog.Options{Dirs: conf.Jobs, Extra: a.options.Definitions})
	_ = jobs.Reload() // a job with errors is reported as not found
	def := jobs.Get(group, job)
	if def == nil {
		return nil,
			exit.Usagef("no daemon answers, and %s/%s is in none of the configured folders of jobs, so the types of its parameters are not known: give them with --params '{...}'", group, job)
	}
	values := url.Values{}
	for name, text := range pairs {
		values.Set(name, text)
	}
	params, err := def.Bind(values)
	if err != nil {
		return nil, exit.Usagef("%s/%s: %w", group, job, err)
	}
	return params.JSON(), nil
}
