package statefs

// Meaning returns what state s means, in one sentence for people; "" for text that is no state.
func (s State) Meaning() string { return stateMeanings[s] }

// Meaning returns what cause c means, in one sentence for people; "" for text that is no cause.
func (c Cause) Meaning() string { return causeMeanings[c] }

// The sentences of docs/states.md.
var stateMeanings = map[State]string{
	Scheduled:       "It waits for its time.",
	Queued:          "It starts as soon as there is room for it.",
	Running:         "It is at work, or may have had effects: the marker is renamed before the work starts.",
	Paused:          "A person holds it, with a stopped process or before it started.",
	WaitingApproval: "It stands at a gate until somebody approves or rejects.",
	FailedRetryable: "An attempt failed and the next one is due at the time in the record.",
	FailedManual:    "It waits until a person acts.",
	Trailing:        "Its main chain is done and optional steps are still at work.",
	Completed:       "It went to its end; the result says whether every item did.",
	Cancelled:       "It was ended by a request, a removed marker or a client.",
	Failed:          "It ended with an error and is not tried again.",
}

var causeMeanings = map[Cause]string{
	CauseSubmit:        "Somebody submits it.",
	CauseDue:           "Its time, or the time of its next attempt, has come.",
	CauseStart:         "The daemon starts a run.",
	CausePause:         "Somebody asks to pause it.",
	CauseResume:        "Somebody asks to resume it, and its stopped work is still there.",
	CauseRelease:       "Somebody asks to resume it, and it has no process to go on with.",
	CauseCancel:        "Somebody asks to cancel it.",
	CauseMarkerMissing: "Somebody removed its marker.",
	CauseInterrupted:   "The daemon stops and takes the work down with it; this costs no attempt.",
	CauseRescued:       "A run died with an earlier daemon, or failed in a way that may go well another time, and is replaced by another one.",
	CauseDone:          "The work ended by itself, with or without failed items.",
	CauseFailed:        "The work could not be done, and is not tried again.",
	CauseRetryLater:    "An attempt failed and another one is due later.",
	CauseNotYet:        "Somebody asks to resume it, and its time has not come yet.",
	CauseExpired:       "It waited in the queue for too long, or its deadline has passed.",
	CauseNeedsPerson:   "An attempt failed in a way that only a person can mend.",
	CauseDependency:    "An operation that it comes after has ended otherwise than it must, and cannot any more.",
	CauseRetry:         "Somebody asks to try it again.",
	CauseNextStep:      "The next step takes another lane or other limits than the one before.",
	CauseSkip:          "Somebody asks to go on without the step at which it stands.",
	CauseGate:          "The work reached a gate.",
	CauseApprove:       "Somebody approves at the gate.",
	CauseReject:        "Somebody rejects at the gate.",
	CauseMainDone:      "The main chain is done while optional steps go on.",
	CauseAllDone:       "The last optional step has ended.",
	CauseUnreadable:    "Its record cannot be read, so it is kept for a person.",
}
