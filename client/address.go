package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/statefs/machine"
)

// parseAddress returns the base URL and the transport for an address.
func parseAddress(address string) (base string, transport *http.Transport, err error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport = &http.Transport{DialContext: dialer.DialContext, Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 4}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if !filepath.IsAbs(path) {
			return "", nil, fmt.Errorf("address %q: the path of a socket must be absolute, as in unix:/run/jobdir.sock", address)
		}
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			name, done, err := machine.SocketName(path)
			if err != nil {
				return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
			}
			defer done()
			return dialer.DialContext(ctx, "unix", name)
		}
		return "http://localhost", transport, nil
	}
	host, port, _ := net.SplitHostPort(address)
	if _, err := strconv.ParseUint(port, 10, 16); err == nil && host != "" {
		return "", nil, fmt.Errorf("address %q: expected http://HOST:PORT or unix:/PATH: is it http://%s?", address, address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, fmt.Errorf("address %q: expected http://HOST:PORT or unix:/PATH: %w", address, errors.Unwrap(err))
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", nil, fmt.Errorf("address %q: expected http://HOST:PORT or unix:/PATH", address)
	}
	return strings.TrimSuffix(u.String(), "/"), transport, nil
}

// UnreachableError means that no daemon accepted a connection at an address. It wraps its cause.
type UnreachableError struct {
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no daemon answers at %s: %v", e.Address, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Unreachable reports whether err means that no connection to a daemon could be made, so that nothing was carried out.
func Unreachable(err error) bool {
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// explainUnreachable turns the error of a round trip into a message for people.
func explainUnreachable(address string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return &UnreachableError{Address: address, Err: op.Err}
	}
	return &noAnswerError{address, err}
}

// noAnswerError means that a connection was made but no answer came: the request may have been carried out.
type noAnswerError struct {
	address string
	err     error
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("request to the daemon at %s: %v", e.address, e.err)
}
func (e *noAnswerError) Unwrap() error { return e.err }
