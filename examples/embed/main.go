// Embed is a program with a jobdir daemon inside: a Go handler, an embedded definition that names it, and a
// context that ends the daemon.
//
//	go run ./examples/embed -storage /tmp/greetings
//	curl 'http://127.0.0.1:8484/demo/greet?names=Ada,Grace'
//
// The definition is the authority for the name and the parameters of the job, the storage directory for all
// operations. If the daemon cannot start or continue, Serve returns the reason and the program ends with code
// 1.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jobdir/jobdir/cli"
)

//go:embed greet.yaml
var definition []byte

func main() {
	storage := flag.String("storage", "storage", "storage directory")
	listen := flag.String("listen", "127.0.0.1:8484", "address to listen on")
	flag.Parse()
	if err := serve(*storage, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func serve(storage, listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Serve(ctx, cli.ServeConfig{
		Storage:     storage,
		Listen:      []string{listen},
		Definitions: []cli.Definition{{Name: "greet.yaml", YAML: definition}},
		Handlers:    cli.Handlers{"greet": {Run: greet, Total: total}},
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Serving:     func(s cli.Serving) { fmt.Fprintln(os.Stdout, "serving", s.Addresses[0]) },
	})
}

// greet is the work: one item for each name.
func greet(_ context.Context, op *cli.Op) error {
	names := split(op.Params())
	for i, name := range names {
		// A pause or a cancel takes effect here.
		if err := op.Checkpoint(); err != nil {
			return err
		}
		op.Item(i+1, len(names), name)
		if name == "" {
			op.Fail(errors.New("the name is empty"))
			continue
		}
		op.Logf("  Hello, %s!", name)
		op.OK(slog.Int("letters", len(name)))
	}
	return op.Result("greeted", len(names))
}

// total is known before the work begins, so the header of the stream contains it.
func total(params cli.Params) *int64 {
	return new(int64(len(split(params))))
}

func split(params cli.Params) []string {
	names := strings.Split(params.Get("names"), ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}
