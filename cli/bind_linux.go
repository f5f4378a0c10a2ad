package cli

import (
	"fmt"
	"os"
	"path/filepath"
)

// longestSocket is the longest path that fits into sun_path; see unix(7).
const longestSocket = 107

// bindName is the name under which a socket is bound: its path or, when that is too long, one through the descriptor of
// its folder.
func bindName(dir *os.File, path string) string {
	if len(path) <= longestSocket {
		return path
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
}
