package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
)

// completeWithin bounds how long a shell waits for suggestions. Any error yields no suggestions.
const completeWithin = 2 * time.Second

// suggestions makes a completion from a function that finds words.
func (a *app) suggestions(find func(context.Context, *session, []string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (found []string, _ cobra.ShellCompDirective) {
		err := a.runs(func(ctx context.Context, s *session, args []string) (err error) {
			ctx, stop := context.WithTimeout(ctx, completeWithin)
			defer stop()
			found, err = find(ctx, s, args)
			return err
		})(cmd, args)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// inStorage makes a completion from a function that finds words in the storage.
func (a *app) inStorage(find func(context.Context, *backend.Backend, []string) ([]string, error)) cobra.CompletionFunc {
	return a.suggestions(func(ctx context.Context, s *session, args []string) ([]string, error) {
		b, err := s.open(ctx, "")
		if err != nil {
			return nil, err
		}
		return find(ctx, b, args)
	})
}

// completeIDs suggests live IDs for at most that many arguments; 0 means any number.
func (a *app) completeIDs(most int) cobra.CompletionFunc {
	return a.inStorage(func(ctx context.Context, b *backend.Backend, args []string) (found []string, err error) {
		if most > 0 && len(args) >= most {
			return nil, nil
		}
		ids, err := b.LiveIDs(ctx)
		for _, id := range ids {
			found = append(found, id.String())
		}
		return found, err
	})
}

// completeSteps suggests the steps of the operation that is the first argument.
func (a *app) completeSteps() cobra.CompletionFunc {
	return a.inStorage(func(ctx context.Context, b *backend.Backend, args []string) (found []string, err error) {
		if len(args) == 0 {
			return nil, nil
		}
		id, err := b.ID(ctx, args[0])
		if err != nil {
			return nil, err
		}
		op, err := b.Operation(ctx, id)
		if err != nil {
			return nil, err
		}
		for i := range op.Steps {
			found = append(found, cobra.CompletionWithDesc(op.Steps[i].Name, string(op.Steps[i].Status)))
		}
		return found, nil
	})
}

// completeOneJob suggests jobs for the first argument.
func (a *app) completeOneJob(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.suggestions(findAddresses)(cmd, nil, begun)
}

// completeJob suggests jobs for the first argument and parameters for the others.
func (a *app) completeJob(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeOneJob(cmd, args, begun)
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	found, _ := a.suggestions(func(ctx context.Context, s *session, args []string) (found []string, err error) {
		jobs, err := s.findJobs(ctx)
		for _, j := range jobs {
			if j.Address() != args[0] {
				continue
			}
			for _, p := range j.Params {
				found = append(found, cobra.CompletionWithDesc(p.Name+"=", p.Summary))
			}
		}
		if err == nil {
			directive = cobra.ShellCompDirectiveNoSpace
		}
		return found, err
	})(cmd, args, begun)
	return found, directive
}

// findAddresses returns the jobs for a completion, except the arguments.
func findAddresses(ctx context.Context, s *session, args []string) (found []string, err error) {
	jobs, err := s.findJobs(ctx)
	for _, j := range jobs {
		if !slices.Contains(args, j.Address()) {
			found = append(found, cobra.CompletionWithDesc(j.Address(), j.Summary))
		}
	}
	return found, err
}
