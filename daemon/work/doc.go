// Package work does the work of one run: it executes the handler, the command or the commands of the
// items of a job, pauses and ends them, and collects what they report.
//
//	Host.New(Spec) ──▶ Run ─── Start ──▶ goroutine: handler · command · command for each item
//	                    │  Pause, Resume, End, Kill, Detach
//	                    ▼
//	Begun, Changed, Progressed (functions of the Spec), and after the end: Outcome, Report, files
//
// A Run is made of parts that own their fields: the task (what to do, and where its files are), the
// gate (pause), the pulse (progress, heartbeats and time limits), the commands (its own, and the
// commands of an earlier daemon) and the report (item results and the footer). The package does not
// know which operations exist, their states and markers, or what follows the end of a run. It writes
// the log, the item file, the progress and the scratch folder of its run, and no record.
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	starts    makes a run, or adopts it           start.go, adopt.go
//	kinds     handler, command, items             op.go, command.go, items.go, item_journal.go,
//	                                              item_output.go, monitor.go
//	run       one run, and how it ended           run.go, outcome.go, exhausted.go, earlier.go
//	controls  pause, signs of life, processes     gate.go, pulse.go, commands.go
//	task      what a run is to do, and its files  task.go, failure_reason.go
//	reports   what the work reports, and errors   report.go, footer.go, scratch.go, failure.go
package work
