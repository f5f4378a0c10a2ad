package events

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Filter selects events. An event must match every member that is not empty; gaps match every filter.
type Filter struct {
	// Jobs are names of jobs, as JOB or GROUP/JOB.
	Jobs []string
	// Groups, Lanes, Keys, Tags and IDs match the operation; Lanes also match the lane that changed.
	Groups, Lanes, Keys, Tags []string
	IDs                       []statefs.ID
	Types                     []Type
}

// Wants reports whether an event matches.
func (f *Filter) Wants(e *api.Event) bool {
	if e.Type == Missing {
		return true
	}
	return (len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, e.ID)) &&
		among(f.Groups, e.Group) && among(f.Lanes, e.Lane) && among(f.Keys, e.Key) &&
		(len(f.Jobs) == 0 || slices.ContainsFunc(f.Jobs, func(job string) bool { return isOf(e, job) })) &&
		(len(f.Tags) == 0 || slices.ContainsFunc(f.Tags, func(tag string) bool { return slices.Contains(e.Tags, tag) }))
}

func among(wanted []string, is string) bool { return len(wanted) == 0 || slices.Contains(wanted, is) }

// isOf reports whether the event belongs to a job, given as JOB or GROUP/JOB.
func isOf(e *api.Event, job string) bool {
	if group, name, both := strings.Cut(job, "/"); both {
		return e.Group == group && e.Job == name
	}
	return e.Job != "" && e.Job == job
}
