package catalog

import (
	"errors"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/catalog/schedule"
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

var scheduleKeys = keySet{owner: "schedule", known: []string{
	"cron", "timezone", "jitter", "overlap",
	"missed", "params",
}}

// maxJitter is the longest delay of a start that a job may leave to chance.
const maxJitter = 24 * time.Hour

func (j *jobDecoder) schedule(n *node) {
	s := &Schedule{Overlap: schedule.OverlapSkip, Missed: schedule.MissedOnce}
	at := map[string]*node{}
	var line, zone string
	if !j.mapping(n, scheduleKeys, func(key string, _, n *node) {
		at[key] = n
		switch key {
		case "cron":
			line, _ = j.text(n, key)
		case "timezone":
			zone, _ = j.text(n, key)
		case "jitter":
			s.Jitter = j.duration(n, key, maxJitter, "leave the key out to start on time")
		case "overlap":
			word, _ := j.word(n, key, []string{
				string(schedule.OverlapSkip), string(schedule.OverlapQueue),
				string(schedule.OverlapCancel),
			})
			s.Overlap = schedule.Overlap(word)
		case "missed":
			word, _ := j.word(n, key, []string{
				string(schedule.MissedSkip), string(schedule.MissedOnce),
				string(schedule.MissedAll),
			})
			s.Missed = schedule.Missed(word)
		case "params":
			j.scheduleParams = j.scheduled(n)
		}
	}) {
		return
	}
	if at["cron"] == nil {
		j.fail(n, `add cron: "0 3 * * *"`, "schedule has no cron line")
		return
	}
	spec, err := schedule.Parse(line, zone)
	if wrong, ok := errors.AsType[*schedule.FieldError](err); ok {
		j.fail(at[wrong.Field], "", "%s", wrong.Error())
	}
	s.Spec = spec
	j.def.Schedule = s
}

// scheduled reads the parameters of the starts as they are written.
func (j *jobDecoder) scheduled(n *node) url.Values {
	values := url.Values{}
	if n.kind != mappingKind {
		j.fail(n, "write NAME: VALUE", "params must be a mapping, not %s", n.kind)
		return nil
	}
	for _, e := range n.entries {
		if text, ok := j.written(e.value, "the value of "+clip(e.key.text)); ok {
			values.Add(e.key.text, text)
		}
	}
	return values
}

// checkSchedule checks that the job can be started with what its schedule gives it.
func (j *jobDecoder) checkSchedule() {
	if j.def.Schedule == nil || len(j.problems) > 0 {
		return
	}
	params, err := j.def.Bind(j.scheduleParams)
	if err != nil {
		j.fail(j.at["schedule"], "give the parameters of the starts with schedule: {params: {...}}",
			"the schedule cannot start the job: %v", err)
	}
	j.def.Schedule.Params = params
}
