package control

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// submitRefusal is the part of refusalOf for errors of submits; nil for any other error.
func submitRefusal(err error) *refusal {
	if entry, ok := errors.AsType[*submit.EntryError](err); ok {
		answer := *refusalOf(entry.Err)
		answer.text = fmt.Sprintf("The list is refused as a whole; entry %d: %s", entry.Index, answer.text)
		answer.members = maps.Clone(answer.members)
		return answer.with("index", entry.Index)
	}
	if part, ok := errors.AsType[*statefs.PartialPublishError](err); ok && !diskFailed(err) {
		answer := refuse(http.StatusInternalServerError, "%s", printable(part.Error(), 1000))
		answer.cause = err
		return answer
	}
	if list, ok := errors.AsType[*submit.ListError](err); ok {
		return refuse(http.StatusBadRequest, "%s", list.Error())
	}
	if unknown, ok := errors.AsType[*submit.UnknownJobError](err); ok {
		if unknown.Jobs == nil {
			return refuse(http.StatusNotFound, "%s", unknown.Error()).with("groups", unknown.Groups)
		}
		return refuse(http.StatusNotFound, "%s", unknown.Error()).with("jobs", unknown.Jobs)
	}
	if wrong, ok := errors.AsType[*submit.OptionError](err); ok {
		return refuse(http.StatusBadRequest, "%s", wrong.Error()).with("parameter", wrong.Option)
	}
	if conflict, ok := errors.AsType[*submit.ConflictError](err); ok {
		return refuse(http.StatusConflict, "%s", conflict.Error()).with("id", conflict.ID).withHeader("Location",
			"/api/v1/operations/"+conflict.ID.String())
	}
	if reused, ok := errors.AsType[*submit.KeyReusedError](err); ok {
		return refuse(http.StatusUnprocessableEntity, "%s", reused.Error()).with("id", reused.ID)
	}
	if busy, ok := errors.AsType[*submit.BusyError](err); ok {
		status := http.StatusServiceUnavailable
		if busy.Full {
			status = http.StatusTooManyRequests
		}
		seconds := retryAfter
		if busy.RetryAfter > 0 {
			seconds = int((busy.RetryAfter + time.Second - 1) / time.Second)
		}
		return refuse(status, "%s", busy.Text).withHeader("Retry-After", strconv.Itoa(seconds))
	}
	return nil
}
