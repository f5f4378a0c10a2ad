package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/serve"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// Streams are where a command reads from and writes to.
type Streams = term.Streams

// Options are what a program adds to the command line.
type Options struct {
	// Handlers are the Go functions that definitions can name.
	Handlers Handlers
	// Definitions are job definitions that the program contains; nil for none.
	Definitions []Definition
}

// What [Serve] is given, and what it reports.
type (
	// ServeConfig configures a daemon. Storage is required; all other fields have defaults.
	ServeConfig = serve.Config
	// Serving is where a daemon can be reached.
	Serving = serve.Serving
)

// What a program with a daemon inside needs of its parts, so that it imports this package alone.
type (
	// Definition is a job definition that the program contains.
	Definition = catalog.Source
	// Params are the parameters of an operation, by name.
	Params = catalog.Params
	// Handlers are the Go functions that definitions can name.
	Handlers = work.Handlers
	// Handler is a Go function that is the work of operations.
	Handler = work.Handler
	// Op is what a handler gets: the parameters, the log, progress, results.
	Op = work.Op
	// Item is one item of the work of a handler.
	Item = work.Item
	// AttemptError is the error of a handler that also says what happens next.
	AttemptError = work.AttemptError
)

// The reasons with which the context of a handler ends.
var (
	ErrCancelled   = work.ErrCancelled
	ErrInterrupted = work.ErrInterrupted
)

// ErrDetach is the cause with which the context of [Serve] ends if commands shall continue to run.
var ErrDetach = daemon.ErrDetach

// RetryAfter returns err as the error of a handler whose next attempt begins after wait.
func RetryAfter(err error, wait time.Duration) error { return work.RetryAfter(err, wait) }

// NeedsPerson returns err as the error of a handler after which the operation waits for a person.
func NeedsPerson(err error) error { return work.NeedsPerson(err) }

// Serve runs a daemon until ctx ends, and then stops it in order: it refuses new operations, interrupts work
// and puts it back into the queue, ends open streams and releases the lock. If the cause of ctx is
// [ErrDetach], commands of a keeper continue to run instead. Serve returns nil after such a stop, and
// otherwise the reason why the daemon could not start or continue; a *statefs.LockedError if another daemon
// holds the storage.
func Serve(ctx context.Context, c ServeConfig) error { return serve.Run(ctx, c, Version()) }

// Main runs one command line, without the name of the program, and returns the exit code. It reads the environment and
// handles signals, so it is for the main function of a program.
func Main(ctx context.Context, args []string, streams Streams, options Options) int {
	a := &app{streams: streams, handlers: options.Handlers, definitions: options.Definitions}
	root := a.root() //nolint:contextcheck // each command gets ctx from ExecuteContextC
	root.SetArgs(joinWait(args))
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	used, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.Success
	}
	code := exit.Code(err)
	if code == exit.NoReader {
		return code // like any program that SIGPIPE kills
	}
	streams.PrintError(err)
	if _, ok := errors.AsType[*exit.UsageError](err); ok && used != nil {
		streams.Notice("see '%s --help'", used.CommandPath())
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "jobdir",
		Short: "Run long operations, and control them through a directory",
		Long: `jobdir runs long operations. Their whole state is a directory: 'ls storage/jobs' is the list of active
operations, 'touch storage/jobs/ID.pause_requested' pauses one. A daemon serves the same over HTTP.

Exit codes of run and wait: 0 success, 1 failure, 2 partial, 3 a person has to act, 130 cancelled, 75 not known.
Requests with --wait: 1 when it did not take effect, 75 when it has not yet. All commands: 64 wrong usage, 66 not
found, 69 no daemon, 75 try again, 77 not allowed, 141 the reader of the output has closed it, 70 anything else;
serve: 71 the address is in use, 73 another daemon holds the storage.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%w", plainFlagError(err)) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", "", "address of the daemon: http://HOST:PORT or unix:/PATH (JOBDIR_SERVER)")
	flags.String("config", "", "configuration file (JOBDIR_CONFIG; default jobdir.yaml if it exists)")
	config.AddFlags(flags, true)
	root.AddCommand(
		a.serveCommand(), a.runCommand(), a.submitCommand(), a.lsCommand(), a.logsCommand(),
		a.keeperCommand(), wardenCommand(), a.waitCommand(), a.jobsCommand(), a.schedulesCommand(), a.validateCommand(),
		a.historyCommand(), a.showCommand(), a.pruneCommand(), a.sweepCommand(), a.lanesCommand(), a.laneCommand(),
		a.outboxCommand(), a.journalCommand(), backupCommand(a), a.eventsCommand(), a.topCommand(), a.configCommand(), a.versionCommand(),
	)
	root.AddCommand(a.actionCommands()...)
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	completion(root)
	a.completeFlags(root)
	helpOnCommands(root)
	usageErrors(root)
	root.SuggestionsMinimumDistance = 2
	return root
}

// helpOnCommands makes the help command refuse an unknown command.
func helpOnCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"}) // it has just been made
	help.Args = func(_ *cobra.Command, args []string) error {
		_, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = unknownCommand(root, rest[0])
		}
		return err
	}
}

// completion makes cobra's completion command refuse an unknown shell.
func completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, _ := root.Find([]string{"completion"}) // it has just been made
	var shells []string
	for _, shell := range cmd.Commands() {
		shells = append(shells, shell.Name())
	}
	known := strings.Join(shells, ", ")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("completion: there is none for %q: it is one of %s", args[0], known)
		}
		return fmt.Errorf("completion: the shell is missing: it is one of %s", known)
	}
	cmd.RunE = refusedByArgs
}

// completeFlags adds suggestions to the flags lane, state, result and job of all commands.
func (a *app) completeFlags(root *cobra.Command) {
	states := make([]string, 0, len(statefs.States()))
	for _, s := range statefs.States() {
		states = append(states, cobra.CompletionWithDesc(string(s), s.Description()))
	}
	known := map[string]cobra.CompletionFunc{
		"lane": a.inStorage(func(ctx context.Context, b *backend.Backend, _ []string) ([]string, error) {
			return lanesExcept(ctx, b, nil)
		}),
		"status": listCompletion(states),
		"result": listCompletion(results),
		"job":    a.suggestions(findAddresses),
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
func listCompletion[T ~string](words []T) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		found := make([]string, 0, len(words))
		for _, word := range words {
			found = append(found, before+string(word))
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// usageErrors makes the errors of the argument checks of all commands usage errors.
func usageErrors(of *cobra.Command) {
	for _, cmd := range of.Commands() {
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if err := check(cmd, args); err != nil {
					return exit.Usagef("%w", err)
				}
				return nil
			}
		}
		usageErrors(cmd)
	}
}
