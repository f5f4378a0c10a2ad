//go:build !linux

package client

import (
	"context"
	"net"
)

// dialSocket connects to a unix socket. The system limits the length of the path to about 100 bytes.
func dialSocket(ctx context.Context, dialer *net.Dialer, path string) (net.Conn, error) {
	return dialer.DialContext(ctx, "unix", path)
}
