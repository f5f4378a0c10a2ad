package statefs

import (
	"cmp"
	"fmt"

	"github.com/jobdir/jobdir/steps"
)

// Attention is what a person has to know of an operation that goes on only when somebody acts on it.
type Attention struct {
	// Step is the step at which it stands, Number its place among the Total steps, from 1; "" and 0 for a job without steps.
	Step   string `json:"step,omitempty"`
	Number int    `json:"number,omitempty"`
	Total  int    `json:"total,omitempty"`
	// Approval says that the step waits to be approved; otherwise it, or the operation, has failed.
	Approval bool `json:"approval,omitempty"`
	// ErrorCode and Message say why.
	ErrorCode string `json:"error_code,omitempty"`
	Message   string `json:"message"`
	// Commands are what helps; the first one is what usually does. Words in capitals are to be replaced.
	Commands []string `json:"commands"`
}

// NeedsPerson reports whether an operation in this state goes on only when somebody acts on it.
func (s State) NeedsPerson() bool { return s == FailedManual || s == WaitingApproval }

// AttentionOf says why an operation in a state goes on only when somebody acts, nil when it does by itself. rec may be nil, when it cannot be
// read.
func AttentionOf(id ID, state State, rec *Record) *Attention {
	if !state.NeedsPerson() {
		return nil
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
		a.Step, a.Total = step.Name, len(rec.Steps)
		for i := range rec.Steps {
			if rec.Steps[i].Name == step.Name {
				a.Number = i + 1
			}
		}
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

// Place is the step at which the operation stands, as in "step 3 / 8 split"; "" for a job without steps.
func (a *Attention) Place() string {
	if a.Step == "" {
		return ""
	}
	return fmt.Sprintf("step %d / %d %s", a.Number, a.Total, a.Step)
}

// Sentence says it to a person, with the commands that help. It continues "operation ID", and begins with a verb.
func (a *Attention) Sentence(id ID) string {
	if a.Approval {
		of := ""
		if a.Step != "" {
			of = " of " + a.Place()
		}
		return fmt.Sprintf("waits for an approval%s: 'jobdir approve %s' lets it go on, 'jobdir reject %s' ends it", of, id, id)
	}
	if a.Step == "" {
		return fmt.Sprintf("waits for a person: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir cancel %s' ends it", a.Message, id, id)
	}
	return fmt.Sprintf("waits for a person at %s: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir skip %s --reason TEXT' goes on without that step, 'jobdir cancel %s' ends it",
		a.Place(), a.Message, id, id, id)
}
