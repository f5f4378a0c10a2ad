//go:build !race

package keeper

// raceDetector disables measurements of memory: the race detector multiplies the memory used.
const raceDetector = false
