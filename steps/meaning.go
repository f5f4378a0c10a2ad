package steps

// Meaning says in one sentence what a status means, "" for what is none.
func (s Status) Meaning() string { return statusMeanings[s] }

// Meaning says in one sentence what happened, "" for what is no cause.
func (c Cause) Meaning() string { return causeMeanings[c] }

var statusMeanings = map[Status]string{
	Pending:         "It has not begun, or begins again.",
	Running:         "It is at work; the record said so before it began.",
	Succeeded:       "It is done and never begins again, unless a person goes back.",
	FailedRetryable: "It failed and is tried again by itself.",
	FailedManual:    "It failed and waits until a person acts.",
	Skipped:         "It is left out; what needs it goes on.",
}

var causeMeanings = map[Cause]string{
	CauseStart:       "A run of it begins.",
	CauseDone:        "Its work ended well, and left every output that the job names.",
	CauseRetryLater:  "An attempt failed and another one is due, at once or later.",
	CauseNeedsPerson: "An attempt failed in a way that only a person can mend, or was the last one.",
	CauseCutOff:      "Its work was ended without a verdict: the operation was cancelled, or the daemon or the machine went away.",
	CauseWhen:        "Its condition does not hold.",
	CauseSkip:        "Somebody asks to go on without it.",
	CauseRetry:       "Somebody asks to try it again.",
	CauseBack:        "Somebody goes back to it, or to a step that it needs.",
	CauseApprove:     "Somebody approves, and it has no work of its own.",
	CauseReject:      "Somebody rejects.",
}
