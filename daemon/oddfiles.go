package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jobdir/jobdir/statefs"
)

// Files that people make by hand and that do nothing are said once in the log each: silence would look like success.

// oddFiles are those of one folder that were said.
type oddFiles struct{ said map[string]string }

// say says what is new among files, with the reason of each.
func (o *oddFiles) say(logger *slog.Logger, folder string, files map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if o.said[name] != files[name] {
			logger.Warn("a file does nothing", "file", folder+"/"+printable(name), "reason", files[name])
		}
	}
	o.said = files
}

// oddSubmission stands for any name in new/ that looks like a submission and is none; no submission has it.
const oddSubmission = ""

// watchedSubmission is what the watch of new/ tells of a file.
func watchedSubmission(file string) (string, bool) {
	if statefs.OddSubmission(file) != "" {
		return oddSubmission, true
	}
	return statefs.SubmissionName(file)
}

// watchedLaneFile is what the watch of lanes/ tells of a file: one that controls nothing is to be said.
func watchedLaneFile(name string) (statefs.LaneFile, bool) {
	f, ok := statefs.ParseLaneFile(name)
	return f, ok || statefs.OddLaneFile(name)
}

func (in *inbox) findOdd() {
	odd, err := in.d.owner.OddSubmissions()
	if err != nil {
		in.d.logger.Error("new/ cannot be listed", "error", err)
		return
	}
	in.odd.say(in.d.logger, "new", odd)
}

// findOdd says which files of schedules/ switch nothing off.
func (s *scheduler) findOdd() {
	names, err := s.d.owner.ScheduleFiles()
	if err != nil {
		s.d.logger.Error("schedules/ cannot be listed", "error", err)
		return
	}
	odd := make(map[string]string)
	for _, f := range names {
		def := s.d.config.Catalog.ByEndpoint(f.Endpoint)
		switch {
		case !f.Known:
			odd[f.Name] = "its name means nothing: it is GROUP-JOB.disabled"
		case f.Disables && (def == nil || def.Schedule == nil):
			odd[f.Name] = fmt.Sprintf("there is no job %q with a schedule", f.Endpoint)
		}
	}
	s.odd.say(s.d.logger, "schedules", odd)
}
