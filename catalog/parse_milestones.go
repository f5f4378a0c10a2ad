package catalog

import "slices"

// milestone reads the name of a milestone; key names it in messages.
func (d *decoder) milestone(n, at *node, key string) string {
	name, ok := d.text(n, key)
	switch {
	case !ok:
	case name == FirstPhase:
		d.fail(at, "it is the phase before the first milestone", "a milestone cannot be %q", name)
	case !stepName.MatchString(name):
		d.fail(at, stepNameHint, "a milestone cannot be %q", clip(name))
	}
	return name
}

// readMilestones decodes the milestones that are reached when all of a set of steps are done.
func readMilestones(j *jobDecoder, n *node, _ string) {
	if n.kind != mappingKind {
		j.fail(n, "write NAME: [STEP, STEP]", "milestones must be a mapping, not %s", n.kind)
		return
	}
	for _, e := range n.entries {
		m := Milestone{Name: j.milestone(e.key, e.key, "a milestone")}
		place := milestonePlace{at: e.key}
		for _, el := range j.list(e.value, "a milestone") {
			name, ok := j.text(el, "a step of a milestone")
			if !ok {
				continue
			}
			if slices.Contains(m.Steps, name) {
				j.fail(el, "", "the milestone has %q twice", clip(name))
				continue
			}
			m.Steps, place.steps = append(m.Steps, name), append(place.steps, el)
		}
		j.def.Milestones, j.milestonesAt = append(j.def.Milestones, m), append(j.milestonesAt, place)
	}
}

// milestonePlace has the position of a milestone and of its steps in the file.
type milestonePlace struct {
	at    *node
	steps []*node
}

// checkMilestones checks that each has a name of its own and steps that there are.
func (j *jobDecoder) checkMilestones() {
	var names []string
	named := func(name string, at *node) {
		if name != "" && slices.Contains(names, name) {
			j.fail(at, "each is reached once", "the milestone %q is given twice", clip(name))
		}
		names = append(names, name)
	}
	for _, s := range j.steps {
		if k := s.at["milestone"]; k != nil {
			named(s.step.Milestone, k)
		}
	}
	for i, m := range j.def.Milestones {
		place := j.milestonesAt[i]
		named(m.Name, place.at)
		for k, name := range m.Steps {
			if j.stepOf(name) == nil {
				j.fail(place.steps[k], j.scope.unknownStepHint(name), "unknown step %q", clip(name))
			}
		}
	}
}
