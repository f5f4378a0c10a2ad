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
	"strings"
	"syscall"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

var folderKind = &Kind{
	Name: "folder",
	Help: "A folder of this machine, which exists. The file appears there as a whole.",
	Keys: []Key{
		{
			Name: "path", Type: PathKey, Required: "write {path: /FOLDER, key: ...}", Hint: "/srv/results",
			Fixed: "no parameter may choose the folder; put it into key",
			Help:  "The folder, from the root. It has to exist: a missing folder may be a disk that is not mounted. Not below the storage",
		},
		{Name: "key", Type: NameKey, Help: "The name below it" + nameHelp},
	},
	Target: func(s Settings, shared *Shared) Target { return Folder{s.Text("path"), shared.storage} },
}

// Folder is an existing folder. A missing folder is not created, because it may be a disk that is
// not mounted.
type Folder struct {
	Path string
	// Storage is a folder below which nothing is delivered; "" means none.
	Storage string
}

// Place implements Target.
func (f Folder) Place() Place { return Place{Label: f.Path, Location: f.Path} }

// Check implements Target.
func (f Folder) Check() error {
	if f.Storage != "" && Inside(f.Path, f.Storage) {
		return fmt.Errorf("the folder %s is part of the storage; deliver to another one", f.Path)
	}
	return nil
}

// Abort implements Target.
func (Folder) Abort(context.Context, *statefs.Upload) error { return nil }

// notInFolder are errors of a name that the folder can never accept.
var notInFolder = []error{
	fs.ErrInvalid, syscall.ENAMETOOLONG, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP,
	fs.ErrExist, syscall.ENOTEMPTY,
}

// Deliver puts a file into the folder. The file appears atomically.
func (f Folder) Deliver(ctx context.Context, p Parcel) (r Receipt, err error) {
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err := f.Check(); err != nil {
		return r, &RefusedError{err.Error()}
	}
	content, err := p.Open()
	if err != nil {
		return r, &LocalError{err}
	}
	defer func() { _ = content.Close() }() // it was read
	sum := sha256.New()
	size, err := files.PutFile(f.Path, p.Name, p.ID, io.TeeReader(whole(content), sum))
	if err != nil {
		return r, f.explain(p, err)
	}
	return Receipt{
		Location: filepath.Join(f.Path, filepath.FromSlash(p.Name)), Bytes: size,
		SHA256: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// explain adds what a person can do about the error.
func (f Folder) explain(p Parcel, err error) error {
	for _, never := range notInFolder {
		if errors.Is(err, never) || leadsOutside(err) {
			return &RefusedError{fmt.Sprintf("put %q into %s: %v; something else has that name, or no file can",
				p.Name, f.Path, err)}
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

// leadsOutside reports whether a part of a name is a link out of the folder. Package os identifies
// this error only by its text.
func leadsOutside(err error) bool { return strings.Contains(err.Error(), "path escapes from parent") }

// Inside reports whether folder is of or below it, by its name or with symbolic links resolved.
func Inside(folder, of string) bool {
	below := func(folder, of string) bool {
		rel, err := filepath.Rel(of, folder)
		return err == nil && filepath.IsLocal(rel)
	}
	of, err := filepath.Abs(of)
	if err != nil {
		return false
	}
	if below(filepath.Clean(folder), of) {
		return true
	}
	folder, err = filepath.EvalSymlinks(folder)
	if err != nil {
		return false // nothing can be put into a folder that does not exist
	}
	of, err = filepath.EvalSymlinks(of)
	return err == nil && below(folder, of)
}
