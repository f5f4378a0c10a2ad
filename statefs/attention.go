package statefs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jobdir/jobdir/statefs/steps"
)

// Attention describes why an operation, or an optional step of it, waits for a person, and what the
// person can do.
type Attention struct {
	// Step is the current step and Number its position among the Total steps, from 1; "" and 0 for
	// a job without steps.
	Step   string `json:"step,omitempty"`
	Number int    `json:"number,omitempty"`
	Total  int    `json:"total,omitempty"`
	// Optional is true for an optional step; the operation does not wait for it.
	Optional bool `json:"optional,omitempty"`
	// Approval means that the step waits for an approval; otherwise the step or the operation has
	// failed.
	Approval bool `json:"approval,omitempty"`
	// ErrorCode and Message give the reason.
	ErrorCode string `json:"error_code,omitempty"`
	Message   string `json:"message"`
	// Commands are the commands that help, the usual one first. Words in capitals are placeholders.
	Commands []string `json:"commands"`
}

// NeedsPerson reports whether an operation in this state waits for a person.
func (s State) NeedsPerson() bool { return s == FailedManual || s == WaitingApproval }

// AttentionOf returns why an operation, or an optional step of it, waits for a person, or nil if
// none does. rec may be nil if the record cannot be read.
func AttentionOf(id ID, state State, rec *Record) *Attention {
	if !state.NeedsPerson() {
		if rec == nil || !state.Live() {
			return nil
		}
		return optionalAttention(id, rec)
	}
	a := &Attention{Approval: state == WaitingApproval}
	if rec != nil {
		a.explain(rec)
	}
	a.Message = cmp.Or(a.Message, string(state))
	name := id.String()
	if a.Approval {
		a.Commands = []string{"jobdir approve " + name, "jobdir reject " + name + " --reason TEXT"}
		return a
	}
	if rec != nil && rec.Lost() {
		a.Commands = []string{"jobdir cancel " + name}
		return a
	}
	a.Commands = []string{"jobdir retry " + name}
	if a.Step != "" {
		a.Commands = append(a.Commands, "jobdir skip "+name+" --reason TEXT", "jobdir set "+name+" NAME=VALUE")
	}
	a.Commands = append(a.Commands, "jobdir cancel "+name)
	return a
}

func (a *Attention) explain(rec *Record) {
	var step steps.Step
	if at := rec.CurrentStep(); at != nil {
		step = *at
		a.setStep(rec, at.Name)
	}
	if a.Approval {
		a.Message = "an approval is needed"
		return
	}
	a.ErrorCode, a.Message = step.ErrorCode, step.ErrorMessage
	if rec.Error != nil {
		a.ErrorCode, a.Message = cmp.Or(a.ErrorCode, rec.Error.Code), cmp.Or(a.Message, rec.Error.Message)
	}
	a.Message = cmp.Or(a.Message, rec.Reason)
}

// optionalAttention returns the attention for the first failed optional step, nil if none has
// failed.
func optionalAttention(id ID, rec *Record) *Attention {
	step := rec.FailedOptionalStep()
	if step == nil {
		return nil
	}
	a := &Attention{Optional: true, ErrorCode: step.ErrorCode, Message: cmp.Or(step.ErrorMessage, string(step.Status))}
	a.setStep(rec, step.Name)
	of := id.String() + " --step " + step.Name
	a.Commands = []string{
		"jobdir retry " + of, "jobdir skip " + of + " --reason TEXT",
		"jobdir set " + id.String() + " NAME=VALUE",
	}
	return a
}

// setStep sets the step of the attention to a step of the record.
func (a *Attention) setStep(rec *Record, name string) {
	a.Step, a.Total = name, len(rec.Steps)
	a.Number = 1 + slices.IndexFunc(rec.Steps, func(s steps.Step) bool { return s.Name == name })
}

// Place describes the current step, such as "step 3 / 8 split"; "" for a job without steps.
func (a *Attention) Place() string {
	if a.Step == "" {
		return ""
	}
	return fmt.Sprintf("step %d / %d %s", a.Number, a.Total, a.Step)
}

// Sentence returns the attention as text for a person, with the commands that help. It continues
// "operation ID" and begins with a verb.
func (a *Attention) Sentence(id ID) string {
	if a.Approval {
		of := ""
		if a.Step != "" {
			of = " of " + a.Place()
		}
		return fmt.Sprintf("waits for an approval%s: 'jobdir approve %s' lets it go on, 'jobdir reject %s' ends it", of, id,
			id)
	}
	if a.ErrorCode == CodeRecordLost {
		return fmt.Sprintf("waits for a person: %s: submit it again, and 'jobdir cancel %s' ends this one", a.Message, id)
	}
	if a.Step == "" {
		return fmt.Sprintf("waits for a person: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir cancel %s' ends it", a.Message, id, id)
	}
	return fmt.Sprintf("waits for a person at %s: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir skip %s --reason TEXT' goes on without that step, 'jobdir cancel %s' ends it",
		a.Place(), a.Message, id, id, id)
}
