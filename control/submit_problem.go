package control

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// submitRefusal is the part of refusalOf for errors of submits; nil for any other error.
func submitRefusal(err error) *front.Refusal {
	if entry, ok := errors.AsType[*submit.EntryError](err); ok {
		answer := *refusalOf(entry.Err)
		answer.Text = fmt.Sprintf("The list is refused as a whole; entry %d: %s", entry.Index, answer.Text)
		answer.Members = maps.Clone(answer.Members)
		return answer.With("index", entry.Index)
	}
	if part, ok := errors.AsType[*statefs.PartialPublishError](err); ok && !diskFailed(err) {
		answer := front.Refuse(http.StatusInternalServerError, "%s", front.Printable(part.Error(), 1000))
		answer.Cause = err
		return answer
	}
	if list, ok := errors.AsType[*submit.ListError](err); ok {
		return front.Refuse(http.StatusBadRequest, "%s", list.Error())
	}
	if unknown, ok := errors.AsType[*submit.UnknownJobError](err); ok {
		if unknown.Jobs == nil {
			return front.Refuse(http.StatusNotFound, "%s", unknown.Error()).With("groups", unknown.Groups)
		}
		return front.Refuse(http.StatusNotFound, "%s", unknown.Error()).With("jobs", unknown.Jobs)
	}
	if wrong, ok := errors.AsType[*submit.OptionError](err); ok {
		return front.Refuse(http.StatusBadRequest, "%s", wrong.Error()).With("parameter", wrong.Option)
	}
	if conflict, ok := errors.AsType[*submit.ConflictError](err); ok {
		return front.Refuse(http.StatusConflict, "%s", conflict.Error()).With("id", conflict.ID).WithHeader("Location",
			"/api/v1/operations/"+conflict.ID.String())
	}
	if reused, ok := errors.AsType[*submit.KeyReusedError](err); ok {
		return front.Refuse(http.StatusUnprocessableEntity, "%s", reused.Error()).With("id", reused.ID)
	}
	if busy, ok := errors.AsType[*submit.BusyError](err); ok {
		status := http.StatusServiceUnavailable
		if busy.Full {
			status = http.StatusTooManyRequests
		}
		seconds := front.RetryAfter
		if busy.RetryAfter > 0 {
			seconds = int((busy.RetryAfter + time.Second - 1) / time.Second)
		}
		return front.Refuse(status, "%s", busy.Text).WithHeader("Retry-After", strconv.Itoa(seconds))
	}
	return nil
}
