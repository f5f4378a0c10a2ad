//go:build !linux

package watch

import "os"

// replacedOrMounted cannot distinguish a mount from a replaced folder here.
func replacedOrMounted(string, *os.Root) string { return GoneReplaced }
