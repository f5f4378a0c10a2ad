package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// unendedJSON answers who wanted the footer of an operation that has none yet.
type unendedJSON struct {
	ID     statefs.ID    `json:"id"`
	Result *string       `json:"result"` // null: there is none
	State  statefs.State `json:"state"`
	Reason string        `json:"reason,omitempty"`
	// Error is what went wrong with its last attempt.
	Error   *statefs.Fault   `json:"error,omitempty"`
	Waiting *statefs.Waiting `json:"waiting,omitempty"`
	// Attention says why a person has to act, and what helps.
	Attention *statefs.Attention `json:"attention,omitempty"`
	// Message says it to a person, with the commands that help.
	Message string `json:"message"`
}

// serveFooter answers with the footer when the operation has ended. Who waits for a person would wait for ever: the answer is 202 with what is
// known then, and also when the time of the preference wait is over.
func (s *Server) serveFooter(w *answer, r *http.Request, f *follower) error {
	ctx := r.Context()
	wait, applied, _ := submitWait(r, nil) // a preference that is not understood is none
	limited, stop := ctx, context.CancelFunc(func() {})
	if wait > 0 {
		limited, stop = context.WithTimeout(ctx, wait)
	}
	defer stop()
	err := s.awaitRest(limited, f)
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return streamError(ctx, err)
	}
	if wait > 0 {
		w.Header().Set("Preference-Applied", applied)
	}
	if snap, err := f.Snapshot(); err != nil {
		return err
	} else if snap.Ended {
		footer, err := stream.WaitFooter(ctx, f)
		if err != nil {
			return streamError(ctx, err)
		}
		_, err = w.Write(append(footer, '\n'))
		return streamError(ctx, err)
	}
	out, err := s.describe(f.id)
	if err != nil {
		return err
	}
	s.askAgain(w, out)
	w.Header().Set("Location", "/api/v1/operations/"+f.id.String())
	return s.sendJSON(w, r, http.StatusAccepted, unended(out))
}

// unended says why an operation has no footer.
func unended(out operationJSON) unendedJSON {
	u := unendedJSON{ID: out.ID, State: out.State, Waiting: out.Waiting}
	if out.Record != nil {
		u.Reason, u.Error = out.Reason, out.Error
	}
	switch {
	case out.Attention != nil:
		u.Attention = out.Attention
		u.Message = fmt.Sprintf("operation %s %s", out.ID, out.Attention.Sentence(out.ID))
	case u.Waiting != nil:
		u.Message = fmt.Sprintf("operation %s has not ended: %s", out.ID, u.Waiting.Sentence())
	default:
		u.Message = fmt.Sprintf("operation %s has not ended: it is %s", out.ID, out.State)
	}
	return u
}
