//go:build !linux

package watch

import "os"

// replacedOrMounted does not tell a mount from a replaced folder here.
func replacedOrMounted(string, *os.Root) string { return GoneReplaced }
