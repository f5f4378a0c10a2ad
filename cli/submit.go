package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/exit"
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
}

func (a *app) submitCommand() *cobra.Command {
	var opts submitOptions
	cmd := &cobra.Command{
		Use:   "submit GROUP/JOB [NAME=VALUE...] | submit -",
		Short: "Start operations without waiting for them, and print their IDs",
		Long: `submit starts an operation and prints its ID once it is as durable as the storage promises. If an equal one
is live, its ID is printed and no new one is made, unless the job has another setting.

"submit -" reads JSON from stdin: one object {"job": "group/name", "params": {...}, "priority": 5, ...} with the
options by their names, or an array of at most 10000 of them: all or none are accepted.

Without a daemon the submission is left in the folder new/ of the storage, where the next daemon finds it.`,
		Example:           "  jobdir submit files/checksum path=. --priority 5\n  jobdir submit - <requests.json",
		Args:              needs("GROUP/JOB, or -"),
		ValidArgsFunction: a.completeJob,
		RunE:              a.runs(opts.submit),
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
	jsonFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("after", a.completeIDs(0)) // the flag exists
	return cmd
}

func (o *submitOptions) submit(ctx context.Context, s *session, args []string) error {
	if args[0] == "-" {
		return submitInput(ctx, s, args)
	}
	members, err := o.members(s.flags)
	if err != nil {
		return err
	}
	members["job"] = args[0]
	group, job, err := jobAddress(args[0], "jobs' lists the jobs")
	if err != nil {
		return err
	}
	pairs, err := parsePairs(args[1:])
	if err != nil {
		return err
	}
	if o.params != "" && len(pairs) > 0 {
		return exit.Usagef("give the parameters as NAME=VALUE or with --params, not both")
	}
	b, err := s.open(ctx, "")
	if err != nil {
		return err
	}
	if len(o.after) > 0 {
		if members["after"], err = b.IDs(ctx, o.after); err != nil {
			return fmt.Errorf("--after: %w", err)
		}
	}
	if o.params == "" {
		typed, err := b.TypedParams(ctx, group, job, pairs)
		if err != nil {
			return err
		}
		if typed != nil {
			members["params"] = typed
		}
	}
	data, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	return submitTo(ctx, s, b, data)
}

// members returns the given options by their names in JSON.
func (o *submitOptions) members(flags *pflag.FlagSet) (map[string]any, error) {
	members := map[string]any{}
	for flag, value := range map[string]any{
		"priority": o.priority, "delay": o.delay, "not-before": o.notBefore, "after": o.after, "require": o.require,
		"tag": o.tags, "key": o.key,
		"idempotency-key": o.idempotencyKey,
	} {
		if !flags.Changed(flag) {
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

// submitInput submits the operations that stdin describes.
func submitInput(ctx context.Context, s *session, args []string) error {
	if len(args) > 1 {
		return exit.Usagef("submit - reads everything from stdin")
	}
	data, err := io.ReadAll(io.LimitReader(s.streams.In, statefs.MaxSubmission+1))
	if err != nil {
		return fmt.Errorf("read stdin: %w", err)
	}
	if len(data) > statefs.MaxSubmission {
		return exit.Usagef("stdin has more than %d bytes", statefs.MaxSubmission)
	}
	if !json.Valid(data) {
		return exit.Usagef("stdin is not JSON: give one object, or an array of them, as in [{\"job\": \"group/name\", \"params\": {}}]")
	}
	b, err := s.open(ctx, "")
	if err != nil {
		return err
	}
	return submitTo(ctx, s, b, data)
}

// submitTo submits and prints the result.
func submitTo(ctx context.Context, s *session, b *backend.Backend, data json.RawMessage) error {
	submitted, err := b.Submit(ctx, data)
	if err != nil {
		return err
	}
	if name := submitted.File; name != "" {
		s.noDaemon(b, fmt.Sprintf("the submission waits in new/; the next daemon answers it with the file %s.accepted or %s.rejected",
			name, name))
		if s.json {
			return s.streams.JSON(map[string]string{"submission": name})
		}
	}
	for _, one := range submitted.Operations {
		if !one.Created {
			s.streams.Notice("%s is %s already and does the same: nothing new was made", one.ID, one.State)
		}
		if s.json {
			err = errors.Join(err, s.streams.JSON(one.Raw))
		} else {
			err = errors.Join(err, s.streams.Line("%s", one.ID))
		}
	}
	return err
}
