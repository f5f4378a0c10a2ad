//go:build !race

package control

// idleStream is what an idle open stream may cost beyond net/http, in bytes.
const idleStream = 5 << 10
