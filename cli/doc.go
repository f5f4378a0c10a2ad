// Package cli is the jobdir program: its commands, its configuration, and the wiring of the daemon.
//
//	jobdir serve ──▶ Serve ──┬─ statefs.Owner   the lock on the storage directory
//	                         ├─ catalog         definitions; job folders are watched and read again
//	                         ├─ daemon          decides and runs
//	                         └─ control         HTTP on the TCP addresses and on storage/jobdir.sock
//	jobdir run, logs, …  ──▶ client ──HTTP──▶ a daemon
//	jobdir ls, pause, …  ──▶ client, or statefs.Tree when no daemon answers
//
// Each command is one file: a struct of its options, its flags, and a function that does it. Other programs have two
// ways in: [Main] is the whole command line with their handlers registered, [Serve] the daemon alone.
//
// # Who is the authority
//
// The storage directory. A command asks the daemon that holds it, found by --server or by the socket in the directory.
// Without a daemon it reads the directory itself and leaves requests there, which the next daemon carries out. A daemon of
// another storage is never asked unless --server names it: what "r42" means there is something else.
//
// # What happens on failure
//
// An error is one line on stderr that begins with "jobdir:" and an exit code; exit.go is the only place that maps one to
// the other, output.go says what goes where. When a part of the daemon fails, [Serve] stops the other parts in order and
// returns the reason.
package cli
