package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
)

// The ways in which Redis syncs what it has appended to its log.
const (
	syncAlways   = "always"   // before it answers
	syncEverysec = "everysec" // in the background, once a second
)

// startRedis starts a Redis with its data in dir, and returns its socket when it serves.
func startRedis(ctx context.Context, dir, appendfsync string) (p *process, socket string, err error) {
	if socket, err = socketIn(dir); err != nil {
		return nil, "", err
	}
	p, err = start(exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", appendfsync))
	if err != nil {
		return nil, "", fmt.Errorf("start redis-server (make bench-peers installs it): %w", err)
	}
	return p, socket, p.ready(ctx, connects(socket))
}

// socketIn is the path of a socket in dir.
func socketIn(dir string) (string, error) {
	socket := filepath.Join(dir, "socket")
	if len(socket) > 100 {
		return "", fmt.Errorf("the folder %s is too long for the name of a socket", dir)
	}
	return socket, nil
}

// connects tries whether a server accepts connections.
func connects(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return c.Close()
	}
}
