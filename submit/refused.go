package submit

import (
	"errors"

	"github.com/jobdir/jobdir/catalog"
)

// Refused tells whether an error of a submit is about what was asked for, so that the same again is refused again. Any other is of the
// machine or of the moment.
func Refused(err error) bool {
	return is[*ListError](err) || is[*OptionError](err) || is[*UnknownJobError](err) || is[*ConflictError](err) || is[*KeyReusedError](err) || is[*catalog.ParamError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
