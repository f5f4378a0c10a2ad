//go:build !race

package control

// idleStream is the allowed cost of an idle open stream in addition to that of net/http, in bytes.
const idleStream = 5 << 10
