// Package jobsexample holds the example jobs that come with jobdir, and the handlers of the jobs in Go.
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
// The YAML files are the authority for the names and parameters of the jobs. A program with a daemon of its
// own gets both from here:
//
//	cli.Serve(ctx, cli.ServeConfig{Storage: dir, Definitions: jobsexample.Definitions(), Handlers: jobsexample.Handlers()})
//
// An item that fails is recorded and the work continues; the operation then ends as completed, with the
// result partial. A handler returns an error only if it cannot do the work as a whole, or because it must
// stop.
package jobsexample
