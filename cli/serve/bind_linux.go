package serve

import (
	"fmt"
	"os"
	"path/filepath"
)

// longestSocket is the longest path that fits into sun_path; see unix(7).
const longestSocket = 107

// bindName returns the name to bind a socket under: its path, or a path through the descriptor of its folder
// when its own path is too long.
func bindName(dir *os.File, path string) string {
	if len(path) <= longestSocket {
		return path
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
}
