//go:build !linux

package statefs

import "os"

// folderHolder returns 0: only Linux shows the holder of a lock.
func folderHolder(*os.File) int { return 0 }
