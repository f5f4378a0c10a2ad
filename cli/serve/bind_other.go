//go:build !linux

package serve

import "os"

// bindName returns the name to bind a socket under. Its maximum length depends on the system: about 100
// bytes.
func bindName(_ *os.File, path string) string { return path }
