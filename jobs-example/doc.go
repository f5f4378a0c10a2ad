// Package jobsexample holds the example jobs that come with jobdir, and the handlers of those that are Go code.
//
//	testrouter/streaming01.yaml ──handler──▶ streaming.go   items one after another, simulated
//	files/checksum.yaml         ──handler──▶ checksum.go    items several at a time, over real files
//	files/compress.yaml         ── a command for each file
//	commands/shell-task.yaml    ── one long command
//	curator/                    ── four jobs, two lanes, a limit and keys: a page of its own
//	media-pipeline/             ── one job of eight steps: a page of its own
//	outbox-s3/                  ── a worker in a module of its own: a page of its own
//	parse/                      ── two tools, retries, progress with phases: a page of its own
//
// The YAML files are the authority on what a job is called and which parameters it takes. A program that runs a daemon of its own
// takes both from here:
//
//	cli.Serve(ctx, cli.ServeConfig{Storage: dir, Definitions: jobsexample.Definitions(), Handlers: jobsexample.Handlers()})
//
// An item that fails is written down and the work goes on; the operation then ends as completed, with the result partial. A
// handler returns an error only when the work as a whole cannot be done, or because it is to end.
package jobsexample
