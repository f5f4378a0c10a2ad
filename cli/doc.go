// Package cli is the jobdir program: its commands, on top of packages of their own.
//
//	jobdir serve ──────────▶ cli/serve     makes the daemon of its parts, and runs it
//	jobdir ls, pause, … ───▶ cli/backend   the daemon, over HTTP, or the directory when no daemon answers
//	jobdir run, wait, … ───▶ client        a daemon
//	jobdir top ────────────▶ cli/top       the view of a daemon
//
//	cli/config: settings   cli/term: streams, tables, texts   cli/exit: exit codes
//
// Each command is one file: a struct of its options, its flags, and the function that runs it. Other programs
// have two entry points: [Main] runs the whole command line with their handlers registered, [Serve] runs only
// the daemon.
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	program  the command line, the daemon     main.go, serve.go, config.go, validate.go, version.go
//	storage  lanes, schedules, deliveries     lane.go, lanes.go, schedules.go, outbox.go, outbox_request.go, journal.go,
//	                                          sweep.go
//	views    show jobs, operations, events    jobs.go, ls.go, show.go, show_steps.go, logs.go, history.go, events.go,
//	                                          top.go
//	work     start and change operations      submit.go, run.go, watcher.go, wait.go, request.go, retry.go, bulk.go
//	session  what every command needs         session.go, complete.go
//
// # Authority
//
// The storage directory is the authority. A command uses the daemon that holds it, found by --server or by
// the socket in the directory. Without a daemon, the command reads the directory itself and leaves requests
// there, which the next daemon carries out. It never uses the daemon of another storage unless --server names
// it, because "r42" is a different operation there.
//
// # Errors
//
// An error is one line on stderr that begins with "jobdir:", and an exit code. Only cli/exit maps errors to
// exit codes; cli/term has the rules of stdout and stderr. When a part of the daemon fails, [Serve] stops
// the other parts in order and returns the cause.
package cli
