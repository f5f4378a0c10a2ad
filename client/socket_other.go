//go:build !linux

package client

import (
	"context"
	"net"
)

// dialSocket connects to a unix socket. How long the path may be depends on the system: about 100 bytes.
func dialSocket(ctx context.Context, dialer *net.Dialer, path string) (net.Conn, error) {
	return dialer.DialContext(ctx, "unix", path)
}
