//go:build race

package control

// The race detector uses shadow memory and larger frames, which are measured too.
const idleStream = 20 << 10
