//go:build !linux

package statefs

import "errors"

// createUnnamed does nothing: only Linux has files without a name.
func (w *files) createUnnamed(string, []byte) error { return errors.ErrUnsupported }
