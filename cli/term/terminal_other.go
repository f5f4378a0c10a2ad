//go:build !linux

package term

import "os"

// terminal reports whether f may be a terminal; it accepts any other character device too.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
