package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// noFooterJSON is the answer of format=json for an operation that has no footer yet.
type noFooterJSON struct {
	ID     statefs.ID    `json:"id"`
	Result *string       `json:"result"` // always null
	State  statefs.State `json:"state"`
	Reason string        `json:"reason,omitempty"`
	// Error is the error of the last attempt.
	Error   *statefs.Fault   `json:"error,omitempty"`
	Waiting *statefs.Waiting `json:"waiting,omitempty"`
	// Attention is why a person has to act, and which commands help.
	Attention *statefs.Attention `json:"attention,omitempty"`
	// Message is the same as a sentence for people.
	Message string `json:"message"`
}

// serveFooter answers with the footer when the operation has ended. It answers 202 with the current state when the
// operation waits for a person, as the client could wait for ever, and when the preference wait has expired.
func (s *streams) serveFooter(w *front.Response, r *front.Request, f *follower) error {
	ctx := r.Context()
	wait, applied, _ := r.PreferredWait(nil) // an invalid preference is ignored
	limited, stop := ctx, context.CancelFunc(func() {})
	if wait > 0 {
		limited, stop = context.WithTimeout(ctx, wait)
	}
	defer stop()
	err := s.wait.awaitEndOrPerson(limited, f)
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
	out, err := s.view.describe(f.id)
	if err != nil {
		return err
	}
	s.wait.setRetryAfter(w, out)
	w.Header().Set("Location", "/api/v1/operations/"+f.id.String())
	return w.SendJSON(http.StatusAccepted, noFooterOf(out))
}

// noFooterOf explains why an operation has no footer.
func noFooterOf(out operationJSON) noFooterJSON {
	u := noFooterJSON{ID: out.ID, State: out.State, Waiting: out.Waiting}
	if out.Record != nil {
		u.Reason, u.Error = out.Reason, out.Error
	}
	switch {
	case out.Attention != nil && !out.Attention.Optional:
		u.Attention = out.Attention
		u.Message = fmt.Sprintf("operation %s %s", out.ID, out.Attention.Sentence(out.ID))
	case u.Waiting != nil:
		u.Message = fmt.Sprintf("operation %s has not ended: %s", out.ID, u.Waiting.Sentence())
	default:
		u.Message = fmt.Sprintf("operation %s has not ended: it is %s", out.ID, out.State)
	}
	return u
}
