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

// The endings of names in new/: a submission, what it waits for, and the two answers to it.
const (
	submissionSuffix = ".json"
	waitingSuffix    = ".waiting"
	acceptedSuffix   = ".accepted"
	rejectedSuffix   = ".rejected"
)

// MaxSubmission is the size of the largest file in new/ that is read, in bytes.
const MaxSubmission = 32 << 20

// longestSubmission is the length of the longest name of a submission, in bytes, without its ending.
const longestSubmission = 200

// keepAnswers is how long an answer in new/ is kept for whoever asked.
const keepAnswers = 7 * 24 * time.Hour

// NewDir returns the absolute path of new/, to which submissions are moved.
func (t *Tree) NewDir() string { return filepath.Join(t.dir, newDir) }

// SubmissionName returns the name of a submission without its ending, and false for any other name in new/. Names that begin with a dot are
// of files that are still being written.
func SubmissionName(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, submissionSuffix)
	return name, ok && name != "" && name[0] != '.' && len(name) <= longestSubmission
}

// OddSubmission says why a file of new/ that looks like a submission is none, "" when it is one or does not look like it.
func OddSubmission(file string) string {
	name := file[:len(file)-len(path.Ext(file))]
	if _, ok := SubmissionName(file); ok || name == "" || file[0] == '.' || !strings.EqualFold(path.Ext(file), submissionSuffix) {
		return ""
	}
	if len(name) > longestSubmission {
		return fmt.Sprintf("its name has %d bytes before %s, and at most %d are taken", len(name), path.Ext(file), longestSubmission)
	}
	return fmt.Sprintf("its name has to end in %s", submissionSuffix)
}

// OddSubmissions returns the files of new/ that look like submissions and are none, with the reason of each.
func (o *Owner) OddSubmissions() (map[string]string, error) {
	entries, err := fs.ReadDir(o.root.FS(), newDir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", newDir, err)
	}
	odd := make(map[string]string)
	for _, entry := range entries {
		if why := OddSubmission(entry.Name()); why != "" {
			odd[entry.Name()] = why
		}
	}
	return odd, nil
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
		if _, err = o.root.Lstat(from); err == nil {
			// An answer that is there is that to an earlier one of the name, and whoever waits for one would take it for that to this.
			err = errors.Join(o.removeAnswer(name+acceptedSuffix), o.removeAnswer(name+rejectedSuffix), o.root.Rename(from, to))
		}
	}
	if err != nil {
		return fmt.Errorf("take the submission %s: %w", name, err)
	}
	// Its identity is that of the name in taken/, and must not be another one after a power cut.
	return errors.Join(o.takenSync.sync(), o.syncNew())
}

func (o *Owner) removeAnswer(file string) error {
	if err := o.root.Remove(path.Join(newDir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

// SayWaiting says beside the answers why a submission that was taken has none yet. An answer removes it.
func (o *Owner) SayWaiting(name, why string) error {
	if err := o.files.replace(path.Join(newDir, name+waitingSuffix), []byte(strings.Join(strings.Fields(why), " ")+"\n"), false); err != nil {
		return fmt.Errorf("say what the submission %s waits for: %w", name, err)
	}
	return nil
}

// answerSubmission writes an answer, which is durable before the submission goes, and removes that to an earlier one of the name.
func (o *Owner) answerSubmission(name, suffix, other, text string) error {
	file := path.Join(newDir, name)
	err := o.files.replace(file+suffix, []byte(text), false)
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

// SweepAnswers removes answers in new/ that have been there for a week, and what a submission waits for that is not there any more.
func (o *Owner) SweepAnswers() error {
	entries, err := fs.ReadDir(o.root.FS(), newDir)
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
		return errors.Is(err, fs.ErrNotExist)
	}
	answer := strings.HasSuffix(file, acceptedSuffix) || strings.HasSuffix(file, rejectedSuffix)
	return answer && o.options.Now().Sub(written) >= keepAnswers
}
