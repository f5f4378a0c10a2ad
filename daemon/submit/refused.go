package submit

import (
	"errors"

	"github.com/jobdir/jobdir/catalog"
)

// Refused reports whether an error of a submit is permanent: the same submit will be refused again. All other
// errors depend on the machine or the moment.
func Refused(err error) bool {
	return is[*ListError](err) || is[*OptionError](err) || is[*UnknownJobError](err) || is[*ConflictError](err) ||
		is[*KeyReusedError](err) || is[*catalog.ParamError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
