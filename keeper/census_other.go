//go:build !linux

package keeper

// census has no meaning without a search for marks; see sweep.
type census struct{}

var marks census

func (*census) clear([]string, uint64) (bool, error) { return false, nil }
