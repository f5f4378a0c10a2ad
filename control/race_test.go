//go:build race

package control

// The race detector keeps shadow memory and larger frames, which count as ours.
const idleStream = 20 << 10
