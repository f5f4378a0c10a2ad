package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/jobdir/jobdir/statefs"
)

// Folder is a folder that is there: one that is missing is not made, because it may be a disk that is not mounted.
type Folder struct{ Path string }

// notInFolder are errors of a name that the folder can never take.
var notInFolder = []error{fs.ErrInvalid, syscall.ENAMETOOLONG, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP}

// Deliver puts a file into the folder. It appears as a whole.
func (f Folder) Deliver(ctx context.Context, p Parcel) (r Receipt, err error) {
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	content, err := p.Open()
	if err != nil {
		return r, &OwnError{err}
	}
	defer func() { _ = content.Close() }() // it was read
	sum := sha256.New()
	size, err := statefs.PutFile(f.Path, p.Name, p.ID, io.TeeReader(whole(content), sum))
	if err != nil {
		return r, f.explain(p, err)
	}
	return Receipt{Location: filepath.Join(f.Path, filepath.FromSlash(p.Name)), Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// explain says what a person can do.
func (f Folder) explain(p Parcel, err error) error {
	for _, never := range notInFolder {
		if errors.Is(err, never) {
			return &RefusedError{fmt.Sprintf("put %q into %s: %v; something else has that name, or no file can", p.Name, f.Path, err)}
		}
	}
	advice := "it is tried again"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		advice = "make the folder, or mount its disk"
	case errors.Is(err, fs.ErrPermission):
		advice = "let the user of the daemon write there"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = "make room there"
	case errors.Is(err, syscall.EROFS):
		advice = "mount it for writing"
	}
	return fmt.Errorf("put %q into %s: %w; %s", p.Name, f.Path, err, advice)
}
