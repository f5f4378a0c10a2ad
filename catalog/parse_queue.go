package catalog

import "slices"

var uniqueKeys = keySet{owner: "unique", known: []string{"on_hit", "by"}}

// maxLimits bounds the limits of a job: each is checked at every start.
const maxLimits = 16

// queue decodes the keys that decide when an operation may start and which operations are equal.
func (j *jobDecoder) queue(key string, n *node) {
	def := j.def
	switch key {
	case "lane":
		if s, ok := j.text(n, key); ok {
			def.Lane = s
			switch {
			case s == AllLanes:
				j.fail(n, "it means every lane", "lane cannot be %q", s)
			case !LaneName(s):
				j.fail(n, queueNameHint, "lane cannot be %q", clip(s))
			}
		}
	case "limits":
		j.limits(n)
	case "key":
		if s, ok := j.written(n, key); ok {
			def.Key = s
			switch {
			case s == "":
				j.fail(n, "leave the key out", "key is empty")
			case len(s) > MaxKey:
				j.fail(n, "", "key is longer than %d bytes", MaxKey)
			}
			j.uses = append(j.uses, use{at: n, text: s, early: true})
		}
	case "key_order":
		s, _ := j.word(n, key, []string{string(KeyBySubmit), string(KeyByPriority), string(KeyAnyOrder)})
		def.KeyOrder = KeyOrder(s)
	case "priority":
		if v, ok := j.integer(n, key); ok {
			def.Priority = int(v)
			if v < -MaxPriority || v > MaxPriority {
				j.fail(n, "it is -1000000 to 1000000, higher ones start first", "priority cannot be %d", v)
			}
		}
	case "unique":
		j.unique(n)
	}
}

const queueNameHint = "small letters, digits, _ and -, a letter or digit first, 63 characters at most"

func (j *jobDecoder) limits(n *node) {
	for _, e := range j.list(n, "limits") {
		s, ok := j.text(e, "a limit")
		switch {
		case !ok:
			continue
		case !LimitName(s):
			j.fail(e, queueNameHint, "a limit cannot be %q", clip(s))
		case slices.Contains(j.def.Limits, s):
			j.fail(e, "", "the limit %q is given twice", s)
		}
		j.def.Limits = append(j.def.Limits, s)
	}
	if len(j.def.Limits) > maxLimits {
		j.fail(n, "", "limits has more than %d names", maxLimits)
	}
}

func (j *jobDecoder) unique(n *node) {
	j.mapping(n, uniqueKeys, func(key string, _, n *node) {
		j.at["unique."+key] = n
		switch key {
		case "on_hit":
			s, _ := j.word(n, key, []string{string(HitReturn), string(HitReject), string(HitNext), string(HitOff)})
			j.def.Unique.OnHit = OnHit(s)
		case "by":
			for _, e := range j.list(n, "by") {
				s, ok := j.text(e, "a parameter of by")
				if ok && slices.Contains(j.def.Unique.By, s) {
					j.fail(e, "", "by names %q twice", clip(s))
				}
				j.def.Unique.By = append(j.def.Unique.By, s)
			}
		}
	})
}

// checkQueue checks what depends on more than one key.
func (j *jobDecoder) checkQueue() {
	if at := j.at["key_order"]; at != nil && j.at["key"] == nil {
		j.fail(at, "add key", "key_order has a meaning only with key")
	}
	by := j.at["unique.by"]
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
