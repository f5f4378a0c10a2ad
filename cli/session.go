package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/work"
)

// app is one invocation of the program.
type app struct {
	streams     term.Streams
	handlers    work.Handlers
	definitions []catalog.Source
	server      string // the flag --server of every command
}

// session is one command at work: its settings, the way to the storage, and its streams.
type session struct {
	*backend.Target
	streams term.Streams
	flags   *pflag.FlagSet
	json    bool     // the flag --json
	closers []func() // what the end of the command closes
}

func (a *app) session(cmd *cobra.Command) (*session, error) {
	conf, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, err
	}
	handlers := func() []string { return slices.Collect(maps.Keys(a.handlers)) }
	asJSON, _ := cmd.Flags().GetBool("json") // false for a command without the flag
	return &session{Target: &backend.Target{
		Config: conf, Server: a.server, Notice: a.streams.Notice,
		Catalog: catalog.Options{Extra: a.definitions, Handlers: handlers},
	}, streams: a.streams, flags: cmd.Flags(), json: asJSON}, nil
}

// runs makes the function of a command that runs do.
func (a *app) runs(do func(context.Context, *session, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := a.session(cmd)
		if err != nil {
			return err
		}
		defer func() {
			for _, closer := range s.closers {
				closer()
			}
		}()
		return do(cmd.Context(), s, args)
	}
}

// opens is runs for a command that needs the storage; away is the parameter of open.
func (a *app) opens(away string, do func(context.Context, *session, *backend.Backend, []string) error,
) func(*cobra.Command, []string) error {
	return a.runs(func(ctx context.Context, s *session, args []string) error {
		b, err := s.open(ctx, away)
		if err != nil {
			return err
		}
		return do(ctx, s, b, args)
	})
}

// open opens the storage, by a daemon or by its directory, until the command ends. away is what it tells a person
// about a command that works without a daemon; "" for nothing.
func (s *session) open(ctx context.Context, away string) (*backend.Backend, error) {
	b, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, b.Close)
	if away != "" {
		s.noDaemon(b, away)
	}
	return b, nil
}

// connect connects to a daemon until the command ends.
func (s *session) connect(ctx context.Context) (*client.Client, error) {
	c, err := s.Connect(ctx)
	if err == nil {
		s.closers = append(s.closers, c.Close)
	}
	return c, err
}

func (s *session) findJobs(ctx context.Context) ([]client.Job, error) {
	jobs, done, err := s.OpenJobs(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return jobs.Jobs(ctx)
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

// What noDaemon tells of reads, and of requests.
const (
	readFromDirectory = "the output is read from the directory"
	waitsOnDisk       = "a request waits on disk until one is"
)

// each calls do for all things, also after an error.
func each[T any](all []T, do func(T) error) error {
	var failed []error
	for _, one := range all {
		failed = append(failed, do(one))
	}
	return errors.Join(failed...)
}

// jsonFlag adds --json to a command that prints data.
func jsonFlag(cmd *cobra.Command) { cmd.Flags().Bool("json", false, "print JSON") }

// print prints data: value as JSON, or else a table.
func (s *session) print(value any, head []string, rows [][]string) error {
	if s.json {
		return s.streams.JSON(value)
	}
	return s.streams.Table(head, rows)
}

// printList prints a list: as JSON under its name, or else as a table.
func printList[T any](s *session, name string, all []T, head []string, rows [][]string) error {
	return s.print(map[string]any{name: append([]T{}, all...), "count": len(all)}, head, rows)
}

// plainFlagError rewords an error of the flag parser for people.
func plainFlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := wrong.GetFlag()
	kind := map[string]string{
		"int": "a whole number", "int64": "a whole number", "duration": "a duration such as 90s or 1h30m",
		"bool": "true or false",
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

// onlyCommands checks the arguments of a command that takes none besides its commands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}

func unknownCommand(cmd *cobra.Command, name string) error {
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return exit.Usagef("unknown command %q; did you mean %s?", name, strings.Join(near, " or "))
	}
	return exit.Usagef("unknown command %q", name)
}

// refusedByArgs is the function of a command whose Args refuse everything.
func refusedByArgs(*cobra.Command, []string) error { return nil }

// needs checks that there are arguments; what names the missing one in the error.
func needs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s: %s is missing", cmd.Name(), what)
		}
		return nil
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q", cmd.Name(), args[0])
	}
	return nil
}

// atMostOne checks that there is at most one argument.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s: takes %s, not %d", cmd.Name(), what, len(args))
		}
		return nil
	}
}

// exactlyOne checks that there is exactly one argument.
func exactlyOne(what string) cobra.PositionalArgs {
	return cobra.MatchAll(atMostOne(what), needs(what))
}

// jobAddress splits GROUP/JOB; where is the command that lists what could be meant.
func jobAddress(address, where string) (group, job string, err error) {
	group, job, ok := strings.Cut(address, "/")
	if !ok || group == "" || job == "" {
		return "", "", exit.Usagef("%q is not a job: give GROUP/JOB; 'jobdir %s", address, where)
	}
	return group, job, nil
}
