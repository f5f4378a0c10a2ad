package trigger

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// A file that a person created and that has no effect is logged once: silence would look like
// success.

// strayFileLog holds the stray files of one folder that were logged, with their reasons.
type strayFileLog struct{ logged map[string]string }

// logNew logs the files that are new or have another reason than before.
func (o *strayFileLog) logNew(logger *slog.Logger, folder string, files map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if o.logged[name] != files[name] {
			logger.Warn("a file does nothing", "file", folder+"/"+stream.Printable(name), "reason", files[name])
		}
	}
	o.logged = files
}

// straySubmission is the key for any file in new/ that looks like a submission and is none; no
// submission has it.
const straySubmission = ""

// watchedSubmission returns the key of a file for the watch of new/.
func watchedSubmission(file string) (string, bool) {
	if statefs.StraySubmission(file) != "" {
		return straySubmission, true
	}
	return statefs.SubmissionName(file)
}

func (in *inbox) logStrayFiles() {
	odd, err := in.config.Owner.Inbox.Stray()
	if err != nil {
		in.config.Logger.Error("new/ cannot be listed", "error", err)
		return
	}
	in.strayFiles.logNew(in.config.Logger, "new", odd)
}

// logStrayFiles logs which files of schedules/ disable nothing.
func (s *scheduler) logStrayFiles() {
	names, err := s.config.Owner.Schedules.List()
	if err != nil {
		s.config.Logger.Error("schedules/ cannot be listed", "error", err)
		return
	}
	odd := make(map[string]string)
	for _, f := range names {
		def := s.config.Catalog.ByEndpoint(f.Endpoint)
		switch {
		case !f.Known:
			odd[f.Name] = "its name is not GROUP-JOB.disabled"
		case f.Disables && (def == nil || def.Schedule == nil):
			odd[f.Name] = fmt.Sprintf("there is no job %q with a schedule", f.Endpoint)
		}
	}
	s.strayFiles.logNew(s.config.Logger, "schedules", odd)
}
