package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/statefs/machine"
)

// checkExposure refuses an address that other machines can reach, unless it is protected or explicitly
// allowed.
func checkExposure(addresses []string, allowed bool) error {
	for _, address := range addresses {
		if err := config.CheckListen(address); err != nil {
			return exit.Usagef("listen: %w", err)
		}
		if !allowed && !config.Loopback(address) {
			return exit.Usagef("listen on %s: other machines can reach that address: require tokens with --token-file, or allow all requests with --insecure", address)
		}
	}
	return nil
}

// listen opens the socket in the storage and all addresses. The caller holds the lock on the storage.
func (s *service) listen(ctx context.Context) error {
	mode := fs.FileMode(0o600)
	if s.config.GroupControl {
		mode = 0o660
	}
	own, err := listenSocket(s.tree.SocketPath(), mode)
	if err != nil {
		return err
	}
	s.add(own)
	for _, address := range s.config.Listen {
		var l net.Listener
		if path, ok := strings.CutPrefix(address, config.UnixPrefix); ok {
			if err := unused(ctx, path); err != nil {
				return err
			}
			l, err = listenSocket(path, mode)
		} else {
			l, err = (&net.ListenConfig{}).Listen(ctx, family(address), address)
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("listen on %s: %w: stop the other program, or choose another address with --listen",
				address, exit.ErrPortInUse)
		}
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		s.add(l)
	}
	return nil
}

func (s *service) add(l net.Listener) {
	s.listeners = append(s.listeners, l)
	s.closers = append(s.closers, func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
}

// unused checks that no program answers at a socket, so that the socket may be replaced.
func unused(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return exit.Usagef("listen on %s: there is a file at that path that is no socket", path)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // the connection only tests for a listener
		return fmt.Errorf("listen on %s: %w: another program answers there", path, exit.ErrPortInUse)
	}
	return nil
}

// socket is a unix socket that knows its real path and is removed on close.
type socket struct {
	net.Listener
	path string
}

func (l *socket) Close() error {
	err := l.Listener.Close()
	if err == nil {
		err = os.Remove(l.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func socketPath(l net.Listener) string {
	if s, ok := l.(*socket); ok {
		return s.path
	}
	return l.Addr().String()
}

// listenSocket opens a unix socket. It binds the socket under a temporary name and renames it, so that the
// socket appears with its final permissions and replaces a stale one atomically.
func listenSocket(path string, mode fs.FileMode) (net.Listener, error) {
	hidden := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	name, done, err := machine.SocketName(hidden)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer done()
	if err := os.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: name})
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(hidden, mode); err == nil {
		err = os.Rename(hidden, path) //nolint:forbidigo // a socket holds nothing that could be synced
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, errors.Join(err, l.Close(), os.Remove(hidden)))
	}
	return &socket{Listener: l, path: path}, nil
}

// family restricts an IPv4 address to IPv4: 0.0.0.0 would otherwise listen on IPv6 too.
func family(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.To4() != nil {
		return "tcp4"
	}
	return "tcp"
}

// hosts returns the host names that the daemon answers to: those of --hosts, and those in its listen
// addresses.
func (s *service) hosts() []string {
	names := slices.Clone(s.config.Access.Hosts)
	for _, address := range s.config.Listen {
		name, _, err := net.SplitHostPort(address)
		if err == nil && !strings.HasPrefix(address, config.UnixPrefix) && name != "" && name != "localhost" &&
			net.ParseIP(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
