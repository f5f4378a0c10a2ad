package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// completeWithin bounds how long a shell waits for suggestions. Any error yields no suggestions.
const completeWithin = 2 * time.Second

// completeIDs suggests live IDs for at most that many arguments; 0 means any number.
func (a *app) completeIDs(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		conf, err := a.load(cmd)
		if err != nil || most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, stop := context.WithTimeout(cmd.Context(), completeWithin)
		defer stop()
		var found []string
		add := func(r *resolver) error {
			ids, err := r.list()
			for _, id := range ids {
				found = append(found, id.String())
			}
			return err
		}
		err = a.reach(ctx, conf,
			func(c *client.Client) error { return add(resolveRemote(ctx, c)) },
			func(tree *statefs.Tree) error { return add(resolveLocal(tree)) })
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeLanes suggests lanes, each with the reason why it starts nothing.
func (a *app) completeLanes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	conf, err := a.load(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, stop := context.WithTimeout(cmd.Context(), completeWithin)
	defer stop()
	var all *statefs.LanesStatus
	err = a.reach(ctx, conf, func(c *client.Client) (err error) {
		all, err = c.Lanes(ctx)
		return err
	}, func(tree *statefs.Tree) (err error) {
		all, err = lanesOf(tree, conf)
		return err
	})
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for i := range all.Lanes {
		if l := &all.Lanes[i]; !slices.Contains(args, l.Name) {
			found = append(found, cobra.CompletionWithDesc(l.Name, laneState(l)))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeLaneArguments suggests lanes, and the word that means all lanes.
func (a *app) completeLaneArguments(cmd *cobra.Command, args []string, begun string) ([]string,
	cobra.ShellCompDirective,
) {
	found, directive := a.completeLanes(cmd, args, begun)
	if len(args) == 0 {
		found = append(found, cobra.CompletionWithDesc(statefs.AllLanes, "every lane"))
	}
	return found, directive
}

// completeFlags adds suggestions to the flags lane, state, result and job of all commands.
func (a *app) completeFlags(root *cobra.Command) {
	states := make([]string, 0, len(statefs.States()))
	for _, s := range statefs.States() {
		states = append(states, cobra.CompletionWithDesc(string(s), s.Description()))
	}
	results := []string{
		string(statefs.Success), string(statefs.Partial), string(statefs.Failure),
		string(statefs.CancelledResult),
	}
	known := map[string]cobra.CompletionFunc{
		"lane": func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return a.completeLanes(cmd, nil, begun)
		},
		"status": listCompletion(states),
		"result": listCompletion(results),
		"job": func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return a.completeJob(cmd, nil, begun)
		},
	}
	for _, cmd := range root.Commands() {
		if cmd.Name() == "outbox" {
			continue // there, a status is that of a delivery
		}
		for name, complete := range known {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, complete) // it fails for a flag that does not exist or is registered twice
			}
		}
		a.completeFlags(cmd)
	}
}

// listCompletion suggests words for a flag that takes a comma-separated list.
func listCompletion(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		found := make([]string, 0, len(words))
		for _, word := range words {
			found = append(found, before+word)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeJob suggests jobs for the first argument and parameters for the others.
func (a *app) completeOneJob(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeJob(cmd, args, begun)
}

func (a *app) completeJob(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	conf, err := a.load(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, stop := context.WithTimeout(cmd.Context(), completeWithin)
	defer stop()
	jobs, err := a.findJobs(ctx, conf)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for _, j := range jobs {
		if len(args) == 0 {
			found = append(found, cobra.CompletionWithDesc(j.Address(), j.Summary))
			continue
		}
		if j.Address() != args[0] {
			continue
		}
		for _, p := range j.Params {
			found = append(found, cobra.CompletionWithDesc(p.Name+"=", p.Summary))
		}
	}
	if len(args) == 0 {
		return found, cobra.ShellCompDirectiveNoFileComp
	}
	return found, cobra.ShellCompDirectiveNoSpace
}
