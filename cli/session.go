package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/term"
)

// session is one command at work: its settings, the way to the storage, and its streams.
type session struct {
	*backend.Target
	streams term.Streams
}

func (a *app) session(cmd *cobra.Command) (*session, error) {
	conf, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, err
	}
	handlers := func() []string { return slices.Collect(maps.Keys(a.options.Handlers)) }
	return &session{&backend.Target{
		Config: conf, Server: a.server, Notice: a.streams.Notice,
		Catalog: catalog.Options{Extra: a.options.Definitions, Handlers: handlers},
	}, a.streams}, nil
}

// runs makes the function of a command that runs do.
func (a *app) runs(do func(context.Context, *session, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := a.session(cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, args)
	}
}

// opens is runs for a command that needs the storage, by a daemon or by its directory.
func (a *app) opens(do func(context.Context, *session, *backend.Backend, []string) error,
) func(*cobra.Command, []string) error {
	return a.runs(func(ctx context.Context, s *session, args []string) error {
		return s.with(ctx, func(b *backend.Backend) error { return do(ctx, s, b, args) })
	})
}

// with calls do with the storage, by a daemon or by its directory.
func (s *session) with(ctx context.Context, do func(*backend.Backend) error) error {
	b, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	return do(b)
}

// follows is runs for a command that may take long: it ends when the reader of its output is gone.
func (a *app) follows(do func(context.Context, *session, []string) error) func(*cobra.Command, []string) error {
	return a.runs(func(ctx context.Context, s *session, args []string) error {
		return s.streams.Following(ctx, func(ctx context.Context) error { return do(ctx, s, args) })
	})
}

// noDaemon tells that the command works without a daemon, and what that means.
func (s *session) noDaemon(b *backend.Backend, so string) {
	if b.Away != "" {
		s.streams.Notice("no daemon is running on %s: %s", b.Away, so)
	}
}

// readFromDirectory is what noDaemon tells of a command that reads.
const readFromDirectory = "the output is read from the directory"

// each calls do for all things, also after an error.
func each[T any](all []T, do func(T) error) error {
	var failed []error
	for _, one := range all {
		failed = append(failed, do(one))
	}
	return errors.Join(failed...)
}

// jsonFlag adds --json to a command that prints data.
func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print JSON")
}

// plainFlagError rewords an error of the flag parser for people.
func plainFlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := wrong.GetFlag()
	kind := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint": "a whole number from 0",
		"uint64":   "a whole number from 0",
		"duration": "a duration such as 90s or 1h30m", "bool": "true or false",
	}[flag.Value.Type()]
	if kind == "" {
		return err
	}
	return fmt.Errorf("--%s: %q is not %s", flag.Name, wrong.GetValue(), kind)
}

// negative returns the negative number that the parser took for a flag, or "" for any other mistake.
func negative(err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	if name := unknown.GetSpecifiedShortnames(); name != "" && name[0] >= '0' && name[0] <= '9' {
		return "-" + name
	}
	return ""
}
