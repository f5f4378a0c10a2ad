//go:build !linux

package cli

import "os"

// bindName is the name under which a socket is bound. How long it may be depends on the system: about 100 bytes.
func bindName(_ *os.File, path string) string { return path }
