package statefs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The endings of names in new/: a submission, and the two answers to it.
const (
	submissionSuffix = ".json"
	acceptedSuffix   = ".accepted"
	rejectedSuffix   = ".rejected"
)

// MaxSubmission is the size of the largest file in new/ that is read, in bytes.
const MaxSubmission = 32 << 20

// keepAnswers is how long an answer in new/ is kept for whoever asked.
const keepAnswers = 7 * 24 * time.Hour

// NewDir returns the absolute path of new/, to which submissions are moved.
func (t *Tree) NewDir() string { return filepath.Join(t.dir, newDir) }

// SubmissionName returns the name of a submission without its ending, and false for any other name in new/. Names that begin with a dot are
// of files that are still being written.
func SubmissionName(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, submissionSuffix)
	return name, ok && name != "" && name[0] != '.' && len(name) <= 200
}

// Leave puts a submission into new/, for the daemon that is there or the next one, and returns its name. It is as durable as the storage
// promises.
func (t *Tree) Leave(data []byte) (string, error) {
	name := t.options.Now().Format("2006-01-02_15-04-05.000000") + "_" + strings.ToLower(rand.Text()[:6])
	if err := t.files.replace(path.Join(newDir, name+submissionSuffix), data, false); err != nil {
		return "", fmt.Errorf("leave a submission: %w", err)
	}
	return name, t.syncNew()
}

func (t *Tree) syncNew() error { return t.syncFolderOf(newDir) }

// Submissions returns the names of the submissions in new/.
func (o *Owner) Submissions() ([]string, error) { return o.submissionsIn(newDir) }

func (o *Owner) submissionsIn(folder string) ([]string, error) {
	entries, err := fs.ReadDir(o.root.FS(), folder)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	var names []string
	for _, entry := range entries {
		if name, ok := SubmissionName(entry.Name()); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// PeekSubmission reads a submission that is still in new/, and says when it was last written. The error wraps fs.ErrNotExist when it is gone,
// and is an *[OddSubmissionError] when it can be none.
func (o *Owner) PeekSubmission(name string) (data []byte, written time.Time, err error) {
	file := path.Join(newDir, name+submissionSuffix)
	if data, err = o.readSubmission(file); err != nil {
		return nil, time.Time{}, err
	}
	info, err := o.root.Lstat(file)
	if err != nil {
		return nil, time.Time{}, err
	}
	return data, info.ModTime(), nil
}

// TakeSubmission moves a submission into taken/, from where on nobody writes it and its name is free for the next one. The error wraps fs.ErrExist while
// an earlier one of that name is being carried out.
func (o *Owner) TakeSubmission(name string) error {
	from, to := path.Join(newDir, name+submissionSuffix), path.Join(takenDir, name+submissionSuffix)
	_, err := o.root.Lstat(to)
	switch {
	case err == nil:
		err = fs.ErrExist // only the daemon gives names there, so nobody takes it before the rename
	case errors.Is(err, fs.ErrNotExist):
		err = o.root.Rename(from, to)
	}
	if err != nil {
		return fmt.Errorf("take the submission %s: %w", name, err)
	}
	// Its identity is that of the name in taken/, and must not be another one after a power cut.
	return errors.Join(o.takenSync.sync(), o.syncNew())
}

// TakenSubmissions returns the names of the submissions that are being carried out.
func (o *Owner) TakenSubmissions() ([]string, error) { return o.submissionsIn(takenDir) }

// ReadSubmission reads a submission that was taken. Its identity tells this file from every other one that has or had its name.
func (o *Owner) ReadSubmission(name string) (data []byte, identity string, err error) {
	file := path.Join(takenDir, name+submissionSuffix)
	if data, err = o.readSubmission(file); err != nil {
		return nil, "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(o.dir, file), &st); err != nil {
		return nil, "", fmt.Errorf("look at %s: %w", file, err)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s\x00%d\x00%d\x00", name, st.Ino, time.Unix(st.Ctim.Unix()).UnixNano()) // a hash does not fail
	_, _ = sum.Write(data)
	return data, hex.EncodeToString(sum.Sum(nil)), nil
}

func (o *Owner) readSubmission(file string) ([]byte, error) {
	data, err := o.readRegular(o.root, file, MaxSubmission)
	_, large := errors.AsType[*CorruptError](err)
	switch {
	case errors.Is(err, errIrregular):
		return nil, &OddSubmissionError{"it is no regular file"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &OddSubmissionError{"the daemon may not read it"}
	case large:
		return nil, &OddSubmissionError{fmt.Sprintf("it is larger than %d bytes", MaxSubmission)}
	}
	return data, err
}

// OddSubmissionError says why a file in new/ can be no submission.
type OddSubmissionError struct{ Reason string }

func (e *OddSubmissionError) Error() string { return e.Reason }

// AcceptSubmission answers a submission that was taken with the IDs of its operations, which are on disk already, and removes it.
func (o *Owner) AcceptSubmission(name string, ids []ID) error {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id.text + "\n")
	}
	if err := o.answerSubmission(name, acceptedSuffix, rejectedSuffix, text.String()); err != nil {
		return err
	}
	if err := o.root.Remove(path.Join(takenDir, name+submissionSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the submission %s: %w", name, err)
	}
	return o.takenSync.sync()
}

// RejectSubmission answers a submission, taken or not, with why nothing came of it, and moves it to corrupt/.
func (o *Owner) RejectSubmission(name string, taken bool, why string) error {
	why = strings.Join(strings.Fields(why), " ")
	if err := o.answerSubmission(name, rejectedSuffix, acceptedSuffix, why+"\n"); err != nil {
		return err
	}
	folder := newDir
	if taken {
		folder = takenDir
	}
	if err := o.quarantine(path.Join(folder, name+submissionSuffix), why); err != nil {
		return err
	}
	return errors.Join(o.takenSync.sync(), o.syncNew())
}

// answerSubmission writes an answer, which is durable before the submission goes, and removes that to an earlier one of the name.
func (o *Owner) answerSubmission(name, suffix, other, text string) error {
	file := path.Join(newDir, name)
	err := o.files.replace(file+suffix, []byte(text), false)
	if err == nil {
		err = o.root.Remove(file + other)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("answer the submission %s: %w", name, err)
	}
	return o.syncNew()
}

// SweepAnswers removes answers in new/ that have been there for a week.
func (o *Owner) SweepAnswers() error {
	entries, err := fs.ReadDir(o.root.FS(), newDir)
	if err != nil {
		return fmt.Errorf("read %s: %w", newDir, err)
	}
	for _, entry := range entries {
		answer := strings.HasSuffix(entry.Name(), acceptedSuffix) || strings.HasSuffix(entry.Name(), rejectedSuffix)
		info, err := entry.Info()
		if err != nil || !answer || !info.Mode().IsRegular() || o.options.Now().Sub(info.ModTime()) < keepAnswers {
			continue
		}
		if err := o.root.Remove(path.Join(newDir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old answer: %w", err)
		}
	}
	return nil
}
