// Command testserver speaks the protocol of MongoDB over files in a folder, for the tests of the folder above:
//
//	testserver ADDRESS FOLDER
//
// It is FerretDB with SQLite, in a module of its own, so that neither the daemon nor the example carries it. SQLite
// keeps each statement on the disk, so that a server which is killed goes on where it was. What it lacks: change
// streams, transactions, and updates that are atomic.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		os.Exit(1)
	}
}

func serve() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("want an address and a folder, got %q", os.Args[1:])
	}
	folder, err := filepath.Abs(os.Args[2])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	server, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{TCP: os.Args[1]}, Handler: "sqlite", SQLiteURL: "file:" + folder + "/",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return fmt.Errorf("serve %s: %w", os.Args[1], err)
	}
	fmt.Println("testserver: serving") // the socket is there
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return server.Run(ctx)
}
