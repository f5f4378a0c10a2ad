package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/backup"
)

func (a *app) journalCommand() *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "journal [ID...]",
		Short: "Print the last changes from the journal",
		Long: `journal prints the lines that the journal of the storage still has, the oldest first, one JSON object a line:
the record of an operation after each change. It reads the files, so it also works while a daemon runs. An ID may be
shortened to its number, r42 or 42. A storage has a journal if the setting commit is journal.`,
		Example: "  jobdir journal --since 10m r42",
		RunE: a.follows(func(_ context.Context, s *session, ids []string) error {
			return s.printJournal(since, ids)
		}),
	}
	cmd.Flags().StringVar(&since, "since", "",
		"from that change on: its number (lsn), a time, a date, or 2h, 7d for so long ago")
	check := &cobra.Command{
		Use:   "check",
		Short: "Check whether the journal is whole",
		Long: `check reads the whole journal, and prints how many segments it has, its first and last change, and the last
checkpoint: the files of operations have everything up to that. Exit code 1: it is damaged, or a part of it is lost.`,
		Args: noArguments,
		RunE: a.runs(func(_ context.Context, s *session, _ []string) error { return s.checkJournal() }),
	}
	jsonFlag(check)
	repair := &cobra.Command{
		Use:   "repair",
		Short: "Make a storage with a damaged journal usable again",
		Long: `repair replays the journal up to its damage, moves the damaged segment and those behind it to corrupt/, and
prints each operation that has changes there: nothing is sure about these. A daemon starts on the storage then. No
daemon may run.`,
		Args: noArguments,
		RunE: a.runs(func(_ context.Context, s *session, _ []string) error { return s.repairJournal() }),
	}
	jsonFlag(repair)
	cmd.AddCommand(check, repair)
	return cmd
}

// journalLine is what a filter needs of a line of the journal.
type journalLine struct {
	ID        statefs.ID `json:"id"`
	Deleted   statefs.ID `json:"deleted"`
	UpdatedAt time.Time  `json:"updated_at"`
	Opened    time.Time  `json:"opened"`
}

// journalFilter selects lines of the journal.
type journalFilter struct {
	from  uint64    // number of the first line
	after time.Time // time of the first line; zero for none
	ids   []string
}

func parseJournalFilter(since string, ids []string, now time.Time) (f journalFilter, err error) {
	f.ids = ids
	if since == "" {
		return f, nil
	}
	if f.from, err = strconv.ParseUint(since, 10, 64); err == nil {
		return f, nil
	}
	at, ok := history.ParseTime(since, now)
	if !ok {
		return f, exit.Usagef("flag --since: %q is not the number of a change, a time (2025-11-26T13:07:00+01:00, 2025-11-26 13:07:00), a date (2025-11-26) or a duration (2h, 7d)", since)
	}
	f.after = at
	return f, nil
}

// matches reports whether a line is selected. It is called with the lines in their order: behind the first line of the
// time, all are.
func (f *journalFilter) matches(number uint64, text []byte) bool {
	var line journalLine
	if number < f.from || json.Unmarshal(text, &line) != nil {
		return false
	}
	if !f.after.IsZero() {
		if line.UpdatedAt.Before(f.after) && line.Opened.Before(f.after) {
			return false
		}
		f.after = time.Time{}
	}
	if len(f.ids) == 0 {
		return true
	}
	return slices.ContainsFunc(f.ids, func(text string) bool {
		return namesOperation(text, line.ID) || namesOperation(text, line.Deleted)
	})
}

// namesOperation reports whether an ID, or a number such as r42 or 42, is that of an operation.
func namesOperation(text string, id statefs.ID) bool {
	number, err := strconv.ParseUint(strings.TrimPrefix(text, "r"), 10, 64)
	return !id.IsZero() && (text == id.String() || err == nil && number == id.Sequence())
}

func (s *session) printJournal(since string, ids []string) error {
	filter, err := parseJournalFilter(since, ids, time.Now())
	if err != nil {
		return err
	}
	sum, err := statefs.ReadJournal(s.Config.Storage, func(number uint64, line []byte) error {
		if !filter.matches(number, line) {
			return nil
		}
		return s.streams.Line("%s", line)
	})
	if err == nil && sum.Segments == 0 {
		s.streams.Notice("%s has no journal: the setting commit of its daemon is not journal", s.Config.Storage)
	}
	return err
}

func (s *session) checkJournal() error {
	sum, err := statefs.ReadJournal(s.Config.Storage, func(uint64, []byte) error { return nil })
	lost, isLost := errors.AsType[*statefs.JournalLostError](err)
	damage, isDamaged := statefs.AsJournalDamage(err)
	problem := ""
	switch {
	case isLost:
		problem = lost.Error()
	case isDamaged:
		problem = damage.Error()
	case err != nil:
		return err
	}
	if s.json {
		err = s.streams.JSON(struct {
			statefs.JournalSummary
			Whole   bool   `json:"whole"`
			Problem string `json:"problem,omitempty"`
		}{sum, problem == "", problem})
	} else {
		err = s.streams.Line("%s", describeJournal(&sum, problem == ""))
	}
	if err == nil && problem != "" {
		s.streams.Notice("%s", problem)
		err = exit.With(exit.Failure)
	}
	return err
}

// describeJournal describes a journal in a line.
func describeJournal(sum *statefs.JournalSummary, whole bool) string {
	text := term.Plural(sum.Segments, "segment", "segments")
	if sum.Lines > 0 {
		text += fmt.Sprintf(", changes %d to %d, checkpoint %d", sum.First, sum.Last, sum.Checkpoint)
	}
	switch {
	case !whole:
		text += ": not whole"
	case sum.InUse:
		text += ": whole"
	default:
		text += ": whole, and not needed: the files have everything"
	}
	return text
}

func (s *session) repairJournal() error {
	did, err := s.RepairJournal()
	if err != nil {
		return err
	}
	if did == nil {
		if s.json {
			return s.streams.JSON(map[string]any{"repaired": false})
		}
		s.streams.Notice("the journal is not damaged: nothing to repair")
		return nil
	}
	if s.json {
		return s.streams.JSON(map[string]any{
			"repaired": true, "damage": did.Damage.Error(), "moved": did.Moved, "last": did.Last,
			"operations": append([]statefs.UnsureOperation{}, did.Unsure...),
		})
	}
	for _, op := range did.Unsure {
		record := "the record is older"
		if op.Has {
			record = "the record has it"
		}
		status := string(op.Status)
		if status == "" {
			status = "deleted"
		}
		if err := s.streams.Line("%s\t%s\tchange %d\t%s", op.ID, status, op.LSN, record); err != nil {
			return err
		}
	}
	s.streams.Notice("%s at byte %d: %s", did.Damage.File, did.Damage.Offset, did.Damage.Reason)
	s.streams.Notice("the files have all changes up to %d; moved to corrupt/: %s", did.Last, strings.Join(did.Moved, ", "))
	s.streams.Notice("nothing is sure about %s with readable changes behind the damage, and others may have had changes that cannot be read",
		term.Plural(len(did.Unsure), "operation", "operations"))
	return nil
}

// backupCommand is the command that copies a storage.
func backupCommand(a *app) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "backup --to DIR",
		Short: "Copy the storage, also while a daemon runs",
		Long: `backup copies the storage directory to DIR, which must not exist or be empty. A daemon may run: the copy has
every operation that was answered before the backup began, in its state of then or later. DIR appears when the copy is
complete and on the disk. A daemon that starts on the copy treats it as a storage of its own.`,
		Example: "  jobdir backup --storage /var/lib/jobdir --to /backup/jobdir",
		Args:    noArguments,
		RunE: a.runs(func(ctx context.Context, s *session, _ []string) error {
			if to == "" {
				return exit.Usagef("backup: --to is missing: name the folder of the copy")
			}
			return s.backup(ctx, to)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "folder of the copy")
	jsonFlag(cmd)
	return cmd
}

func (s *session) backup(ctx context.Context, to string) error {
	tree, err := s.Directory("backup")
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // it was only read
	sum, err := backup.Copy(ctx, tree, to)
	if err != nil {
		return err
	}
	if s.json {
		return s.streams.JSON(sum)
	}
	s.streams.Notice("%s, %d bytes: copied to %s", term.Plural(sum.Files, "file", "files"), sum.Bytes, to)
	return nil
}
