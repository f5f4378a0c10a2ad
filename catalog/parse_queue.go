package catalog

import "slices"

// maxLimits bounds the limits of a job: each is checked at every start.
const maxLimits = 16

func readLane(j *jobDecoder, n *node, key string) {
	s, ok := j.text(n, key)
	switch {
	case !ok:
	case s == AllLanes:
		j.fail(n, "it means every lane", "lane cannot be %q", s)
	case !LaneName(s):
		j.fail(n, queueNameHint, "lane cannot be %q", clip(s))
	}
	j.def.Lane = s
}

func readKey(j *jobDecoder, n *node, key string) {
	s, ok := j.written(n, key)
	switch {
	case !ok:
	case s == "":
		j.fail(n, "leave the key out", "key is empty")
	case len(s) > MaxKey:
		j.fail(n, "", "key is longer than %d bytes", MaxKey)
	}
	j.uses = append(j.uses, use{at: n, text: s, early: true})
	j.def.Key = s
}

const queueNameHint = "small letters, digits, _ and -, a letter or digit first, 63 characters at most"

func readLimits(j *jobDecoder, n *node, key string) {
	j.def.Limits = j.names(n, key, "limit", queueNameHint, LimitName)
	if len(j.def.Limits) > maxLimits {
		j.fail(n, "", "limits has more than %d names", maxLimits)
	}
}

func readUniqueBy(j *jobDecoder, n *node, key string) {
	for _, e := range j.list(n, key) {
		s, ok := j.text(e, "a parameter of by")
		if ok && slices.Contains(j.def.Unique.By, s) {
			j.fail(e, "", "by names %q twice", clip(s))
		}
		j.def.Unique.By = append(j.def.Unique.By, s)
	}
}

// checkQueue checks what depends on more than one key.
func (j *jobDecoder) checkQueue() {
	if at := j.at["key_order"]; at != nil && j.at["key"] == nil {
		j.fail(at, "add key", "key_order has a meaning only with key")
	}
	by := j.values["unique.by"]
	if by == nil {
		return
	}
	if j.def.Unique.OnHit == HitOff {
		j.fail(by, "leave out one of the two", "by has no meaning with on_hit: off")
	}
	for i, name := range j.def.Unique.By {
		if j.def.Param(name) != nil {
			continue
		}
		j.unknownParam(by.elements[i], name)
	}
}
