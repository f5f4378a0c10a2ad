package statefs

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
)

// rotationSuffix ends the name of the file that counts the runs of a lane which rotates its environment.
const rotationSuffix = ".rotation"

// Rotation returns how many runs of a lane have had a turn, 0 when nothing is known of it.
func (t *Tree) Rotation(lane string) uint64 {
	data, err := t.readRegular(t.root, path.Join(lanesDir, lane+rotationSuffix), laneFileLimit)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// SetRotation notes how many runs of a lane have had a turn. It is not synced: after a power cut a turn may come again.
func (o *Owner) SetRotation(lane string, n uint64) error {
	return o.files.replaceUnsynced(path.Join(lanesDir, lane+rotationSuffix), fmt.Appendf(nil, "%d\n", n))
}
