//go:build !linux

package statefs

import "errors"

// createUnnamed returns errors.ErrUnsupported: only Linux has files without a name.
func (w *files) createUnnamed(string, []byte) error { return errors.ErrUnsupported }
