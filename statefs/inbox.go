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

	"github.com/jobdir/jobdir/statefs/files"
)

// The suffixes of names in new/: a submission, the note of what it waits for, and the two answers.
const (
	submissionSuffix = ".json"
	waitingSuffix    = ".waiting"
	acceptedSuffix   = ".accepted"
	rejectedSuffix   = ".rejected"
)

// MaxSubmission is the size limit of a submission file in new/, in bytes.
const MaxSubmission = 32 << 20

// maxSubmissionName is the length limit of a submission's name, in bytes, without its suffix.
const maxSubmissionName = 200

// answerRetention is how long an answer stays in new/ for the submitter.
const answerRetention = 7 * 24 * time.Hour

// NewDir returns the absolute path of new/, into which submissions are moved.
func (s *storage) NewDir() string { return filepath.Join(s.dir, newDir) }

// Inbox are the submissions of other processes, which move them into new/, and their answers.
type Inbox struct {
	*storage
	taken *files.Folder // taken/
}

// SubmissionName returns the name of a submission without its suffix, and false for any other name
// in new/. A name that begins with a dot is of a file that is still being written.
func SubmissionName(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, submissionSuffix)
	return name, ok && name != "" && name[0] != '.' && len(name) <= maxSubmissionName
}

// StraySubmission returns why a file of new/ that looks like a submission is not one; "" if it is
// one or does not look like one.
func StraySubmission(file string) string {
	name := file[:len(file)-len(path.Ext(file))]
	if _, ok := SubmissionName(file); ok || name == "" || file[0] == '.' ||
		!strings.EqualFold(path.Ext(file), submissionSuffix) {
		return ""
	}
	if len(name) > maxSubmissionName {
		return fmt.Sprintf("its name has %d bytes before %s, and at most %d are taken", len(name),
			path.Ext(file), maxSubmissionName)
	}
	return fmt.Sprintf("its name has to end in %s", submissionSuffix)
}

// Stray returns the files of new/ that look like submissions and are not, with the
// reason for each.
func (i *Inbox) Stray() (map[string]string, error) {
	entries, err := i.readFolder(newDir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", newDir, err)
	}
	odd := make(map[string]string)
	for _, entry := range entries {
		why := StraySubmission(entry.Name())
		if why == "" {
			continue
		}
		if shorter := shortenedName(entry.Name()); shorter != "" {
			if err := i.renameShortened(entry.Name(), shorter); err == nil {
				continue
			} else if !errors.Is(err, fs.ErrNotExist) {
				why += ": " + err.Error()
			}
		}
		odd[entry.Name()] = why
	}
	return odd, nil
}

// shortenedName returns a shorter name for a submission whose name is too long: the beginning and a
// hash of the whole. It is "" for any other file.
func shortenedName(file string) string {
	const kept = 150
	name, ok := strings.CutSuffix(file, submissionSuffix)
	if !ok || len(name) <= maxSubmissionName || name[0] == '.' {
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:kept], "") + "~" + hex.EncodeToString(sum[:8]) + submissionSuffix
}

// renameShortened gives a submission its shortened name. An earlier submission of that name comes
// first.
func (i *Inbox) renameShortened(file, shorter string) error {
	to := path.Join(newDir, shorter)
	if _, err := i.root.Lstat(to); err == nil {
		return fmt.Errorf("%s comes first", shorter)
	}
	return i.root.Rename(path.Join(newDir, file), to)
}

// PutSubmission writes a submission into new/ for the present or the next daemon and returns its
// name. It is as durable as the storage promises.
func (s *storage) PutSubmission(data []byte) (string, error) {
	name := s.options.Now().Format("2006-01-02_15-04-05.000000") + "_" + strings.ToLower(rand.Text()[:6])
	if err := s.files.Replace(path.Join(newDir, name+submissionSuffix), data, false); err != nil {
		return "", fmt.Errorf("leave a submission: %w", err)
	}
	return name, s.syncFolder(newDir)
}

// List returns the names of the submissions in new/.
func (i *Inbox) List() ([]string, error) { return i.list(newDir) }

func (i *Inbox) list(folder string) ([]string, error) {
	entries, err := i.readFolder(folder)
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

// Peek reads a submission that is still in new/ and returns its modification time. The
// error wraps fs.ErrNotExist if it is gone, and is an *[InvalidSubmissionError] if it is not valid.
func (i *Inbox) Peek(name string) (data []byte, written time.Time, err error) {
	file := path.Join(newDir, name+submissionSuffix)
	if data, err = i.read(file); err != nil {
		return nil, time.Time{}, err
	}
	info, err := i.root.Lstat(file)
	if err != nil {
		return nil, time.Time{}, err
	}
	return data, info.ModTime(), nil
}

// Take moves a submission into taken/, where no client writes it; its name in new/ is
// free for the next one. The error wraps fs.ErrExist while an earlier submission of that name is
// being carried out.
func (i *Inbox) Take(name string) error {
	from, to := path.Join(newDir, name+submissionSuffix), path.Join(takenDir, name+submissionSuffix)
	_, err := i.root.Lstat(to)
	switch {
	case err == nil:
		err = fs.ErrExist // only the daemon creates names there, so the name is free until the rename
	case errors.Is(err, fs.ErrNotExist):
		if _, err = i.root.Lstat(from); err == nil {
			// An existing answer belongs to an earlier submission of the same name. A client that
			// waits for the answer to this one would read it.
			err = errors.Join(i.removeAnswer(name+acceptedSuffix), i.removeAnswer(name+rejectedSuffix), i.root.Rename(from, to))
		}
	}
	if err != nil {
		return fmt.Errorf("take the submission %s: %w", name, err)
	}
	// The identity is computed from the name in taken/ and must stay the same after a power cut.
	return errors.Join(i.taken.Sync(), i.syncFolder(newDir))
}

func (i *Inbox) removeAnswer(file string) error {
	if err := i.root.Remove(path.Join(newDir, file)); err != nil && !files.IsMissing(err) {
		return err
	}
	return nil
}

// Taken returns the names of the submissions being carried out.
func (i *Inbox) Taken() ([]string, error) { return i.list(takenDir) }

// Read reads a taken submission. Its identity distinguishes the file from every other
// file that has or had its name.
func (i *Inbox) Read(name string) (data []byte, identity string, err error) {
	file := path.Join(takenDir, name+submissionSuffix)
	if data, err = i.read(file); err != nil {
		return nil, "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(i.dir, file), &st); err != nil {
		return nil, "", fmt.Errorf("stat %s: %w", file, err)
	}
	sum := sha256.New()
	// Writing to a hash does not fail.
	_, _ = fmt.Fprintf(sum, "%s\x00%d\x00%d\x00", name, st.Ino, time.Unix(st.Ctim.Unix()).UnixNano())
	_, _ = sum.Write(data)
	return data, hex.EncodeToString(sum.Sum(nil)), nil
}

func (i *Inbox) read(file string) ([]byte, error) {
	data, err := i.readRegular(file, MaxSubmission)
	_, large := errors.AsType[*CorruptError](err)
	switch {
	case errors.Is(err, files.ErrIrregular):
		return nil, &InvalidSubmissionError{"it is no regular file"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &InvalidSubmissionError{"the daemon may not read it"}
	case large:
		return nil, &InvalidSubmissionError{fmt.Sprintf("it is larger than %d bytes", MaxSubmission)}
	}
	return data, err
}

// InvalidSubmissionError reports why a file in new/ is not a valid submission.
type InvalidSubmissionError struct{ Reason string }

func (e *InvalidSubmissionError) Error() string { return e.Reason }

// Accept answers a taken submission with the IDs of its operations, which are on disk
// already, and removes it.
func (i *Inbox) Accept(name string, ids []ID) error {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id.text + "\n")
	}
	if err := i.answer(name, acceptedSuffix, rejectedSuffix, text.String()); err != nil {
		return err
	}
	if err := i.root.Remove(path.Join(takenDir, name+submissionSuffix)); err != nil && !files.IsMissing(err) {
		return fmt.Errorf("remove the submission %s: %w", name, err)
	}
	return i.taken.Sync()
}

// Reject answers a submission, taken or not, with the reason of its rejection, and moves
// it to corrupt/.
func (i *Inbox) Reject(name string, taken bool, why string) error {
	why = strings.Join(strings.Fields(why), " ")
	if err := i.answer(name, rejectedSuffix, acceptedSuffix, why+"\n"); err != nil {
		return err
	}
	folder := newDir
	if taken {
		folder = takenDir
	}
	if err := i.corrupt.move(path.Join(folder, name+submissionSuffix), why); err != nil {
		return err
	}
	return errors.Join(i.taken.Sync(), i.syncFolder(newDir))
}

// WriteWaiting writes why a taken submission has no answer yet into a file in new/. The answer
// removes that file.
func (i *Inbox) WriteWaiting(name, why string) error {
	if err := i.files.Replace(path.Join(newDir, name+waitingSuffix), []byte(strings.Join(strings.Fields(why), " ")+"\n"),
		false); err != nil {
		return fmt.Errorf("write what the submission %s waits for: %w", name, err)
	}
	return nil
}

// answer writes an answer, durable before the submission is removed, and removes the
// opposite answer to an earlier submission of the name.
func (i *Inbox) answer(name, suffix, other, text string) error {
	file := path.Join(newDir, name)
	err := i.files.Replace(file+suffix, []byte(text), false)
	if err != nil {
		return fmt.Errorf("answer the submission %s: %w", name, err)
	}
	for _, old := range []string{other, waitingSuffix} {
		if err := i.root.Remove(file + old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("answer the submission %s: %w", name, err)
		}
	}
	return i.syncFolder(newDir)
}

// Sweep removes answers that have been in new/ for a week, and waiting notes whose
// submission is gone.
func (i *Inbox) Sweep() error {
	entries, err := i.readFolder(newDir)
	if err != nil {
		return fmt.Errorf("read %s: %w", newDir, err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || !i.isOldAnswer(entry.Name(), info.ModTime()) {
			continue
		}
		if err := i.root.Remove(path.Join(newDir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old answer: %w", err)
		}
	}
	return nil
}

func (i *Inbox) isOldAnswer(file string, written time.Time) bool {
	if name, waiting := strings.CutSuffix(file, waitingSuffix); waiting {
		_, err := i.root.Lstat(path.Join(takenDir, name+submissionSuffix))
		return files.IsMissing(err)
	}
	answer := strings.HasSuffix(file, acceptedSuffix) || strings.HasSuffix(file, rejectedSuffix)
	return answer && i.options.Now().Sub(written) >= answerRetention
}
