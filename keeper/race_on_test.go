//go:build race

package keeper

// raceDetector says that memory cannot be measured: the race detector takes many times as much.
const raceDetector = true
