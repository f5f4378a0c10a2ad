package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// completeWithin bounds how long a shell waits for suggestions. Whatever goes wrong, there are just none.
const completeWithin = 2 * time.Second

// completeIDs suggests live IDs, for at most that many arguments; 0 is any number.
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
