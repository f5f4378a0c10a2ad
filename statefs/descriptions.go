package statefs

// Description returns what state s means, in one sentence for people; "" for text that is no state.
func (s State) Description() string { return stateDescriptions[s] }

// Description returns what cause c means, in one sentence for people; "" for text that is no cause.
func (c Cause) Description() string { return causeDescriptions[c] }

// stateDescriptions are the sentences of docs/states.md.
var stateDescriptions = map[State]string{
	Scheduled:       "It waits for its time.",
	Queued:          "It starts as soon as its lane, limits and key allow.",
	Running:         "It is at work, or may have had effects: the marker is renamed before the work starts.",
	Paused:          "A person holds it, with a stopped process or before it started.",
	WaitingApproval: "It waits at a gate until a person approves or rejects it.",
	FailedRetryable: "An attempt failed and the next one is due at the time in the record.",
	FailedManual:    "It waits until a person acts.",
	Trailing:        "Its main chain is done, and optional steps are still at work or wait for a person.",
	Completed:       "It went to its end; the result says whether every item did.",
	Cancelled:       "It was ended by a request, a removed marker or a client.",
	Failed:          "It ended with an error and is not tried again.",
}

var causeDescriptions = map[Cause]string{
	CauseSubmit:        "A client submits it.",
	CauseDue:           "Its time, or the time of its next attempt, has come.",
	CauseStart:         "The daemon starts a run.",
	CausePause:         "A client requests a pause.",
	CauseResume:        "A client requests a resume, and its stopped work is still there.",
	CauseRelease:       "A client requests a resume, and it has no process to go on with.",
	CauseCancel:        "A client requests a cancel.",
	CauseMarkerMissing: "A person removed its marker.",
	CauseInterrupted:   "The daemon stops and takes the work down with it; this costs no attempt.",
	CauseRescued:       "A run died with an earlier daemon, or failed in a way that may go well another time, and is replaced by another one.",
	CauseDone:          "The work ended by itself, with or without failed items.",
	CauseFailed:        "The work could not be done, and is not tried again.",
	CauseRetryLater:    "An attempt failed and another one is due later.",
	CauseNotYet:        "A client requests a resume, and its time has not come yet.",
	CauseExpired:       "It waited in the queue for too long, or its deadline has passed.",
	CauseNeedsPerson:   "An attempt failed in a way that only a person can repair.",
	CauseDependency:    "An operation that it comes after has ended without the required result.",
	CauseRetry:         "A client requests a retry.",
	CauseNextStep:      "The next step takes another lane or other limits than the one before.",
	CauseSkip:          "A client requests to skip the current step.",
	CauseGate:          "The work reached a gate.",
	CauseApprove:       "A person approves it at the gate.",
	CauseReject:        "A person rejects it at the gate.",
	CauseMainDone:      "The main chain is done while optional steps go on.",
	CauseAllDone:       "The last optional step has ended.",
	CauseUnreadable:    "Its record cannot be read, so it is kept for a person.",
}
