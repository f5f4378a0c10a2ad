package delivery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// How much is sent before the progress is written into the entry: at most about that much is sent
// again after a crash.
const (
	progressFiles = 100
	progressBytes = 64 << 20
)

// sendArtifacts sends each artifact, in the order of a directory walk, starting after the
// last artifact of an earlier try. Artifacts without a valid name at the target refuse the delivery, but
// only once all others are sent.
// An artifact has the parcel with a name and content of its own.
func (s *sender) sendArtifacts(ctx context.Context, to *catalog.Delivery, values catalog.Values,
	parcel outbox.Parcel, name statefs.EntryName, entry *statefs.OutboxEntry,
) (*statefs.DeliveryOutput, error) {
	target := to.Target(s.shared)
	sent := entry.Artifacts
	if sent == nil {
		sent = new(statefs.SentArtifacts)
	}
	var nameless []string  // the errors of artifacts whose names the target does not take
	var files, bytes int64 // since the progress was written
	err := s.walkArtifacts(name.ID, func(root *os.Root, artifact string) error {
		if sent.After != "" && compareWalk(artifact, sent.After) <= 0 {
			return nil
		}
		at, err := to.Artifact(values, artifact)
		if err != nil {
			nameless = append(nameless, fmt.Sprintf("the artifact %q cannot be delivered: %v", artifact, err))
			return nil
		}
		parcel.Name, parcel.Type, parcel.Upload = at, mediaType(to.Send, artifact), entry.Upload
		parcel.Open = func() (outbox.Content, error) { return openArtifact(root, artifact) }
		receipt, err := target.Deliver(ctx, parcel)
		if err != nil {
			return err
		}
		entry.Artifacts = sent
		sent.After = artifact
		sent.Files++
		sent.Bytes += receipt.Bytes
		if len(sent.Stored) < statefs.MaxStored {
			sent.Stored = append(sent.Stored, statefs.StoredFile{
				Artifact: artifact, Name: at, Bytes: receipt.Bytes,
				SHA256: receipt.SHA256, ETag: receipt.ETag,
			})
		}
		if files, bytes = files+1, bytes+receipt.Bytes; files < progressFiles && bytes < progressBytes {
			return nil
		}
		files, bytes = 0, 0
		return s.saveProgress(name, entry)
	})
	if err == nil && len(nameless) > 0 {
		entry.Artifacts, err = nil, refuseNames(nameless) // its new name may come before the last name sent
	}
	if err != nil {
		return nil, err
	}
	place := target.Place()
	return &statefs.DeliveryOutput{
		Location: place.Location, Bucket: place.Bucket, Bytes: sent.Bytes, Files: sent.Files, Stored: sent.Stored,
	}, nil
}

// maxNames bounds how many names the error message lists.
const maxNames = 5

func refuseNames(reasons []string) error {
	said := strings.Join(reasons[:min(len(reasons), maxNames)], "; ")
	if more := len(reasons) - maxNames; more > 0 {
		said += fmt.Sprintf("; and so with %d more", more)
	}
	return &outbox.RefusedError{Reason: said +
		"; give other names and try again; artifacts with usable names are delivered"}
}

// walkArtifacts calls do for each regular file below the artifact folder. It does not follow
// symbolic links. A missing folder contains no artifacts.
func (s *sender) walkArtifacts(id statefs.ID, do func(root *os.Root, artifact string) error) error {
	dir := s.config.Owner.ArtifactsPath(id)
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &outbox.LocalError{Err: fmt.Errorf("open the folder of artifacts: %w", err)}
	}
	defer func() { _ = root.Close() }() // opened for reading
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return &outbox.LocalError{Err: fmt.Errorf("list the artifacts: %w", err)}
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return do(root, filepath.ToSlash(name))
	})
}

// compareWalk compares two names in the order of a directory walk.
func compareWalk(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

func openArtifact(root *os.Root, name string) (outbox.Content, error) {
	// The open must not block if a pipe replaced the file.
	f, info, err := files.Regular(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if err != nil {
		return nil, fmt.Errorf("open the artifact: %w", err)
	}
	return filePart{f, info.Size()}, nil
}
