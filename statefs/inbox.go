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
func (t *Tree) NewDir() string { return filepath.Join(t.dir, newDir) }

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

// StraySubmissions returns the files of new/ that look like submissions and are not, with the
// reason for each.
func (o *Owner) StraySubmissions() (map[string]string, error) {
	entries, err := o.readFolder(newDir)
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
			if err := o.renameShortened(entry.Name(), shorter); err == nil {
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
func (o *Owner) renameShortened(file, shorter string) error {
	to := path.Join(newDir, shorter)
	if _, err := o.root.Lstat(to); err == nil {
		return fmt.Errorf("%s comes first", shorter)
	}
	return o.root.Rename(path.Join(newDir, file), to)
}

// PutSubmission writes a submission into new/ for the present or the next daemon and returns its
// name. It is as durable as the storage promises.
func (t *Tree) PutSubmission(data []byte) (string, error) {
	name := t.options.Now().Format("2006-01-02_15-04-05.000000") + "_" + strings.ToLower(rand.Text()[:6])
	if err := t.files.Replace(path.Join(newDir, name+submissionSuffix), data, false); err != nil {
		return "", fmt.Errorf("leave a submission: %w", err)
	}
	return name, t.syncNew()
}

func (t *Tree) syncNew() error { return t.syncFolder(newDir) }

// Submissions returns the names of the submissions in new/.
func (o *Owner) Submissions() ([]string, error) { return o.submissionsIn(newDir) }

func (o *Owner) submissionsIn(folder string) ([]string, error) {
	entries, err := o.readFolder(folder)
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

// PeekSubmission reads a submission that is still in new/ and returns its modification time. The
// error wraps fs.ErrNotExist if it is gone, and is an *[InvalidSubmissionError] if it is not valid.
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

// TakeSubmission moves a submission into taken/, where no client writes it; its name in new/ is
// free for the next one. The error wraps fs.ErrExist while an earlier submission of that name is
// being carried out.
func (o *Owner) TakeSubmission(name string) error {
	from, to := path.Join(newDir, name+submissionSuffix), path.Join(takenDir, name+submissionSuffix)
	_, err := o.root.Lstat(to)
	switch {
	case err == nil:
		err = fs.ErrExist // only the daemon creates names there, so the name is free until the rename
	case errors.Is(err, fs.ErrNotExist):
		if _, err = o.root.Lstat(from); err == nil {
			// An existing answer belongs to an earlier submission of the same name. A client that
			// waits for the answer to this one would read it.
			err = errors.Join(o.removeAnswer(name+acceptedSuffix), o.removeAnswer(name+rejectedSuffix), o.root.Rename(from, to))
		}
	}
	if err != nil {
		return fmt.Errorf("take the submission %s: %w", name, err)
	}
	// The identity is computed from the name in taken/ and must stay the same after a power cut.
	return errors.Join(o.takenSync.Sync(), o.syncNew())
}

func (o *Owner) removeAnswer(file string) error {
	if err := o.root.Remove(path.Join(newDir, file)); err != nil && !files.IsMissing(err) {
		return err
	}
	return nil
}

// TakenSubmissions returns the names of the submissions being carried out.
func (o *Owner) TakenSubmissions() ([]string, error) { return o.submissionsIn(takenDir) }

// ReadSubmission reads a taken submission. Its identity distinguishes the file from every other
// file that has or had its name.
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
	// Writing to a hash does not fail.
	_, _ = fmt.Fprintf(sum, "%s\x00%d\x00%d\x00", name, st.Ino, time.Unix(st.Ctim.Unix()).UnixNano())
	_, _ = sum.Write(data)
	return data, hex.EncodeToString(sum.Sum(nil)), nil
}

func (o *Owner) readSubmission(file string) ([]byte, error) {
	data, err := o.readRegular(file, MaxSubmission)
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

// AcceptSubmission answers a taken submission with the IDs of its operations, which are on disk
// already, and removes it.
func (o *Owner) AcceptSubmission(name string, ids []ID) error {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id.text + "\n")
	}
	if err := o.answerSubmission(name, acceptedSuffix, rejectedSuffix, text.String()); err != nil {
		return err
	}
	if err := o.root.Remove(path.Join(takenDir, name+submissionSuffix)); err != nil && !files.IsMissing(err) {
		return fmt.Errorf("forget the submission %s: %w", name, err)
	}
	return o.takenSync.Sync()
}

// RejectSubmission answers a submission, taken or not, with the reason of its rejection, and moves
// it to corrupt/.
func (o *Owner) RejectSubmission(name string, taken bool, why string) error {
	why = strings.Join(strings.Fields(why), " ")
	if err := o.answerSubmission(name, rejectedSuffix, acceptedSuffix, why+"\n"); err != nil {
		return err
	}
	folder := newDir
	if taken {
		folder = takenDir
	}
	if err := o.corrupt.move(path.Join(folder, name+submissionSuffix), why); err != nil {
		return err
	}
	return errors.Join(o.takenSync.Sync(), o.syncNew())
}

// WriteWaiting writes why a taken submission has no answer yet into a file in new/. The answer
// removes that file.
func (o *Owner) WriteWaiting(name, why string) error {
	if err := o.files.Replace(path.Join(newDir, name+waitingSuffix), []byte(strings.Join(strings.Fields(why), " ")+"\n"),
		false); err != nil {
		return fmt.Errorf("say what the submission %s waits for: %w", name, err)
	}
	return nil
}

// answerSubmission writes an answer, durable before the submission is removed, and removes the
// opposite answer to an earlier submission of the name.
func (o *Owner) answerSubmission(name, suffix, other, text string) error {
	file := path.Join(newDir, name)
	err := o.files.Replace(file+suffix, []byte(text), false)
	if err != nil {
		return fmt.Errorf("answer the submission %s: %w", name, err)
	}
	for _, old := range []string{other, waitingSuffix} {
		if err := o.root.Remove(file + old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("answer the submission %s: %w", name, err)
		}
	}
	return o.syncNew()
}

// SweepAnswers removes answers that have been in new/ for a week, and waiting notes whose
// submission is gone.
func (o *Owner) SweepAnswers() error {
	entries, err := o.readFolder(newDir)
	if err != nil {
		return fmt.Errorf("read %s: %w", newDir, err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || !o.isOldAnswer(entry.Name(), info.ModTime()) {
			continue
		}
		if err := o.root.Remove(path.Join(newDir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old answer: %w", err)
		}
	}
	return nil
}

func (o *Owner) isOldAnswer(file string, written time.Time) bool {
	if name, waiting := strings.CutSuffix(file, waitingSuffix); waiting {
		_, err := o.root.Lstat(path.Join(takenDir, name+submissionSuffix))
		return files.IsMissing(err)
	}
	answer := strings.HasSuffix(file, acceptedSuffix) || strings.HasSuffix(file, rejectedSuffix)
	return answer && o.options.Now().Sub(written) >= answerRetention
}
