package config

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// UnixPrefix begins the address of a socket.
const UnixPrefix = "unix:"

// CheckListen checks the syntax of an address.
func CheckListen(address string) error {
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q: the path of a socket must be absolute, as in unix:/run/jobdir.sock", address)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is neither HOST:PORT nor unix:/PATH", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q: the port is no number from 0 to 65535", address)
	}
	return nil
}

// Loopback reports whether only this machine can reach an address.
func Loopback(address string) bool {
	if strings.HasPrefix(address, UnixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
