//go:build !linux

package statefs

func identifyAt(fd int, file string) (Identity, uint64, error) { return identifyByStat(fd, file) }
