package catalog

import "time"

// ending decodes the keys for time limits, interruption and failure of work.
func (j *jobDecoder) ending(key string, n *node) {
	def := j.def
	switch key {
	case "grace":
		def.Grace = j.duration(n, key, maxGrace, "leave the key out for the daemon's own")
	case "timeout":
		def.Timeout = j.duration(n, key, maxTimeout, "leave the key out for no limit")
	case "stall_after":
		if n.kind == textKind && n.text == "off" {
			def.StallAfter = NoStall
			return
		}
		def.StallAfter = j.duration(n, key, maxTimeout, "write off for no notice")
	case "on_stall":
		s, _ := j.word(n, key, []string{string(StallCancel), string(StallRetry)})
		def.OnStall = OnStall(s)
	case "restart":
		s, _ := j.word(n, key, []string{
			string(RestartAdopt), string(RestartResume), string(RestartRetry),
			string(RestartFail),
		})
		def.restart = Restart(s)
	case "queue_timeout":
		def.QueueTimeout = j.duration(n, key, maxTimeout, "leave the key out for no limit")
	case "deadline":
		def.Deadline = j.duration(n, key, maxTimeout, "leave the key out for no limit")
	case "retry":
		j.retry(n)
	case "crash_limit":
		j.crashLimit(n)
	case "exit_codes":
		j.exitCodes(n)
	case "schedule":
		j.schedule(n)
	}
}

// duration reads a time of more than 0 and at most the given one.
func (j *jobDecoder) duration(n *node, key string, most time.Duration, without string) time.Duration {
	var d time.Duration
	var ok bool
	if n.kind == textKind {
		d, ok = parseDuration(n.text)
	}
	switch {
	case !ok && durationForm.MatchString(n.text):
		j.fail(n, without, "%s cannot be %q: it is longer than %dh", key, clip(n.text), int(most.Hours()))
	case !ok:
		j.fail(n, "whole numbers with a unit, such as 500ms, 10s or 1m30s",
			"%s cannot be %s, which is not a duration", key, n.describe())
	case d < 1 || d > most:
		j.fail(n, without, "%s cannot be %q: it must be more than 0 and at most %dh", key, clip(n.text), int(most.Hours()))
	}
	return d
}

// checkEnding checks what depends on the kind of work.
func (j *jobDecoder) checkEnding() {
	j.checkRestart()
	if k := j.at["on_stall"]; k != nil && j.at["stall_after"] == nil {
		j.fail(k, "add stall_after", "on_stall has a meaning only with stall_after")
	}
}

// checkRestart checks that work of this kind can go on in that way.
func (j *jobDecoder) checkRestart() {
	at := j.at["restart"]
	switch {
	case at == nil:
	case j.at["steps"] != nil:
		if j.def.restart == RestartAdopt || j.def.restart == RestartResume {
			j.fail(at, "each step goes on as its kind of work does; for all of them it can be retry or fail",
				"the restart of a job with steps cannot be %q", j.def.restart)
		}
	case j.def.restart == RestartAdopt && j.def.Work() != WorkRun:
		j.fail(at, "items and handlers resume: they go on at the first unfinished item", "only a command can be adopted")
	case j.def.restart == RestartResume && j.def.Work() == WorkRun:
		j.fail(at, "use adopt, retry or fail", "a command has no items at which it could be resumed")
	}
}
