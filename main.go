// Jobdir runs long operations whose whole state is a directory. The package cli is the program; this file adds the
// handlers of the example jobs to it.
package main

import (
	"context"
	"os"

	"github.com/jobdir/jobdir/cli"
	jobsexample "github.com/jobdir/jobdir/jobs-example"
)

func main() {
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams, cli.Options{Handlers: jobsexample.Handlers()}))
}
