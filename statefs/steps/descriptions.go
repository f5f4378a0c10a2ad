package steps

// Description returns what the status means, in one sentence for people; "" for text that is no
// status.
func (s Status) Description() string { return statusDescriptions[s] }

// Description returns what the cause means, in one sentence for people; "" for text that is no
// cause.
func (c Cause) Description() string { return causeDescriptions[c] }

var statusDescriptions = map[Status]string{
	Pending:         "It has not begun, or begins again.",
	Running:         "It is at work; the record had this status before the work began.",
	Succeeded:       "It is done and never begins again, unless a person goes back.",
	FailedRetryable: "It failed and is tried again by itself.",
	FailedManual:    "It failed and waits until a person acts.",
	Skipped:         "It is left out; what needs it goes on.",
}

var causeDescriptions = map[Cause]string{
	CauseStart:       "A run of it begins.",
	CauseDone:        "Its work ended well, and left every output that the job names.",
	CauseRetryLater:  "An attempt failed and another one is due, at once or later.",
	CauseNeedsPerson: "An attempt failed in a way that only a person can repair, or was the last one.",
	CauseCutOff:      "Its work was ended without a verdict: the operation was cancelled, or the daemon or the machine went away.",
	CauseWhen:        "Its condition does not hold.",
	CauseSkip:        "A client requests to skip it.",
	CauseRetry:       "A client requests a retry.",
	CauseBack:        "A client requests a retry from it, or from a step that it needs.",
	CauseApprove:     "A person approves it, and it has no work of its own.",
	CauseReject:      "A person rejects it.",
}
