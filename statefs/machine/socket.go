package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// LongestSocket is the longest path that fits into sun_path; see unix(7).
const LongestSocket = 107

// SocketName returns a name of a unix socket that fits into sun_path, and a function to call after its use. On Linux, a
// path that is too long is reached through the descriptor of its folder; other systems refuse it.
func SocketName(path string) (name string, done func(), err error) {
	if len(path) <= LongestSocket || runtime.GOOS != "linux" {
		return path, func() {}, nil
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)), func() { _ = folder.Close() }, nil
}
