//go:build !linux

package watch

// remoteKind knows no file system types here: a network folder counts as local, and remote changes
// are not noticed.
func remoteKind(string) string { return "" }
