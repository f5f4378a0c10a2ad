package statefs

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
)

// rotationSuffix is the suffix of the file that counts the runs of a lane with a rotating
// environment.
const rotationSuffix = ".rotation"

// Rotation returns how many runs of a lane have taken a turn, 0 if unknown.
func (l *Lanes) Rotation(lane string) uint64 {
	data, err := l.readRegular(path.Join(lanesDir, lane+rotationSuffix), laneFileLimit)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// SetRotation stores how many runs of a lane have taken a turn. It does not sync: a power cut may
// repeat a turn.
func (l *OwnerLanes) SetRotation(lane string, n uint64) error {
	return l.files.ReplaceUnsynced(path.Join(lanesDir, lane+rotationSuffix), fmt.Appendf(nil, "%d\n", n))
}
