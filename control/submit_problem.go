package control

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// submitRefusal is the part of refusalOf that submits alone need; nil for any other error.
func submitRefusal(err error) *refusal {
	if entry, ok := errors.AsType[*submit.EntryError](err); ok {
		answer := *refusalOf(entry.Err)
		answer.text = fmt.Sprintf("Nothing of the list is taken; entry %d: %s", entry.Index, answer.text)
		answer.more = maps.Clone(answer.more)
		return answer.with("index", entry.Index)
	}
	if part, ok := errors.AsType[*statefs.PartError](err); ok && !diskFailed(err) {
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
		return refuse(http.StatusConflict, "%s", conflict.Error()).with("id", conflict.ID).heads("Location", "/api/v1/operations/"+conflict.ID.String())
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
		if busy.After > 0 {
			seconds = int((busy.After + time.Second - 1) / time.Second)
		}
		return refuse(status, "%s", busy.Text).heads("Retry-After", strconv.Itoa(seconds))
	}
	return nil
}
