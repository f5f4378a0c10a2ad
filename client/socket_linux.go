package client

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// longestSocket is the longest path that fits into sun_path; see unix(7).
const longestSocket = 107

// dialSocket connects to a unix socket. A path that is too long for sun_path is reached through the descriptor of its
// folder.
func dialSocket(ctx context.Context, dialer *net.Dialer, path string) (net.Conn, error) {
	if len(path) <= longestSocket {
		return dialer.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
	}
	defer dir.Close()
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
