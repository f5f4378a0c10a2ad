package catalog

import (
	"errors"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

// Schedule decides when a job starts by itself.
type Schedule struct {
	Spec *schedule.Spec
	// Jitter is by how much a start may be later than its slot; 0 is on time.
	Jitter  time.Duration
	Overlap schedule.Overlap
	Missed  schedule.Missed
	// Params are those of each start.
	Params Params
}

// OverlapOf returns what happens at due slots when the operation of an earlier slot has not ended. With
// MissedAll, missed slots do not skip each other: they wait in turn.
func (s *Schedule) OverlapOf(due []time.Time, now time.Time) schedule.Overlap {
	late := len(due) > 1 || len(due) == 1 && now.Sub(due[0]) > schedule.Late
	if late && s.Missed == schedule.MissedAll && s.Overlap == schedule.OverlapSkip {
		return schedule.OverlapQueue
	}
	return s.Overlap
}

// maxJitter is the longest delay of a start that a job may leave to chance.
const maxJitter = 24 * time.Hour

// checkCron reads the line and the time zone of a schedule.
func checkCron(j *jobDecoder, n *yamlfile.Node) {
	at := func(key string) *yamlfile.Node { return j.values["schedule."+key] }
	if at("cron") == nil {
		j.Fail(n, `add cron: "0 3 * * *"`, "schedule has no cron line")
		return
	}
	zone := ""
	if at("timezone") != nil {
		zone = at("timezone").Text
	}
	spec, err := schedule.Parse(at("cron").Text, zone)
	if wrong, ok := errors.AsType[*schedule.FieldError](err); ok {
		j.Fail(at(wrong.Field), "", "%s", wrong.Error())
	}
	j.def.Schedule.Spec = spec
}

// readScheduleParams reads the parameters of the starts as they are written.
func readScheduleParams(j *jobDecoder, n *yamlfile.Node, key string) {
	j.scheduleParams = url.Values{}
	for _, e := range j.Pairs(n, key, "write NAME: VALUE") {
		if text, ok := j.Written(e.Value, "the value of "+phrase.Clip(e.Key.Text)); ok {
			j.scheduleParams.Add(e.Key.Text, text)
		}
	}
}

// checkSchedule checks that the job can be started with what its schedule gives it.
func (j *jobDecoder) checkSchedule() {
	if j.def.Schedule == nil || len(j.Problems) > 0 {
		return
	}
	params, err := j.def.Bind(j.scheduleParams)
	if err != nil {
		j.Fail(j.at["schedule"], "give the parameters of the starts with schedule: {params: {...}}",
			"the schedule cannot start the job: %v", err)
	}
	j.def.Schedule.Params = params
}
