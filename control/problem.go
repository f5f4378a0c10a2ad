package control

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/stream"
)

func notLive(id statefs.ID) *front.RefusalError {
	return front.Refuse(http.StatusNotFound, "Operation '%s' not found or already finished", id).With("id", id)
}

// notReady returns the refusal of an index that is not ready, with the time of the next try.
func notReady(err error) *front.RefusalError {
	known, ok := errors.AsType[*history.NotReadyError](err)
	if !ok {
		return front.Refuse(http.StatusServiceUnavailable, "%s", history.ErrNotReady).WithRetryAfter()
	}
	return front.Refuse(http.StatusServiceUnavailable, "%s", known).WithHeader("Retry-After",
		strconv.Itoa(int(known.After().Seconds())))
}

// refusalOf is the only mapping from errors to statuses.
func refusalOf(err error) *front.RefusalError {
	if known, ok := errors.AsType[*front.RefusalError](err); ok {
		return known
	}
	if answer := submitRefusal(err); answer != nil {
		return answer
	}
	if wrong, ok := errors.AsType[*catalog.ParamError](err); ok {
		answer := front.Refuse(http.StatusBadRequest, "%s", wrong.Error())
		if wrong.Param == "" {
			return answer // the error concerns the whole body
		}
		return answer.With("parameter", wrong.Param)
	}
	if wrong, ok := errors.AsType[*statefs.ArgsError](err); ok {
		if wrong.Member == "" {
			return front.Refuse(http.StatusBadRequest, "The body is not accepted: %s", front.Printable(wrong.Why, 500))
		}
		member := front.Printable(wrong.Member, 200)
		return front.Refuse(http.StatusBadRequest, "Invalid parameter '%s': %s", member,
			front.Printable(wrong.Why, 500)).With("parameter", member)
	}
	if blocked, ok := errors.AsType[*statefs.BlockedError](err); ok {
		return front.Refuse(http.StatusConflict, "%s", blocked.Error()).With("file", blocked.File)
	}
	if displaced, ok := errors.AsType[*statefs.JobsFolderReplacedError](err); ok {
		return front.Refuse(http.StatusServiceUnavailable, "The daemon stops: %s", displaced.Error()).Because(err)
	}
	if diskFailed(err) {
		return front.Refuse(http.StatusInternalServerError,
			"The disk of the daemon fails, and the daemon stops; its log has the reason").Because(err)
	}
	if isUnreadable(err) {
		return front.Refuse(http.StatusInternalServerError, "%s: repair the file, or move it away",
			front.Printable(err.Error(), 1000)).Because(err)
	}
	switch {
	case errors.Is(err, statefs.ErrBadID):
		return front.Refuse(http.StatusBadRequest, "Invalid operation ID: %s", err)
	case errors.Is(err, history.ErrNotReady):
		return notReady(err)
	case errors.Is(err, statefs.ErrNotLive):
		return front.Refuse(http.StatusNotFound, "%s", err)
	case errors.Is(err, stream.ErrShutdown):
		return front.Refuse(http.StatusServiceUnavailable, "The daemon is shutting down").WithRetryAfter()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return front.Refuse(http.StatusInsufficientStorage,
			"The storage of the daemon is full: make room, then try again").Because(err)
	case machine.OutOfFiles(err):
		return front.Refuse(http.StatusServiceUnavailable,
			"The daemon has too many files open: try again, or raise its limit (ulimit -n)").WithRetryAfter().Because(err)
	}
	return front.Refuse(http.StatusInternalServerError,
		"The daemon could not do this; its log has the reason").Because(err)
}

// diskFailed reports whether the state on disk is unknown after err, or the disk cannot be written any more.
func diskFailed(err error) bool {
	_, failed := errors.AsType[*files.SyncError](err)
	return failed || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// submitRefusal is the part of refusalOf for errors of submits; nil for any other error.
func submitRefusal(err error) *front.RefusalError {
	if entry, ok := errors.AsType[*submit.EntryError](err); ok {
		answer := *refusalOf(entry.Err)
		answer.Text = fmt.Sprintf("The list is refused as a whole; entry %d: %s", entry.Index, answer.Text)
		answer.Members = maps.Clone(answer.Members)
		return answer.With("index", entry.Index)
	}
	if part, ok := errors.AsType[*statefs.PartialPublishError](err); ok && !diskFailed(err) {
		return front.Refuse(http.StatusInternalServerError, "%s", front.Printable(part.Error(), 1000)).Because(err)
	}
	if list, ok := errors.AsType[*submit.ListError](err); ok {
		return front.Refuse(http.StatusBadRequest, "%s", list.Error())
	}
	if unknown, ok := errors.AsType[*submit.UnknownJobError](err); ok {
		if unknown.Jobs == nil {
			return front.Refuse(http.StatusNotFound, "%s", unknown.Error()).With("groups", append([]string{}, unknown.Groups...))
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
