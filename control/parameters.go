package control

import (
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
)

// text, number, flag, list and choice return parameters by the kind of their value.
func text(name, summary string) front.Parameter {
	return front.Parameter{Name: name, Kind: "string", Summary: summary}
}

func number(name, summary string) front.Parameter {
	return front.Parameter{Name: name, Kind: "integer", Summary: summary}
}

func flag(name, summary string) front.Parameter {
	return front.Parameter{Name: name, Kind: "boolean", Summary: summary}
}

func list(name, summary string) front.Parameter {
	return front.Parameter{Name: name, Kind: "string", Summary: summary, List: true}
}

func choice(name string, values []string, summary string) front.Parameter {
	return front.Parameter{Name: name, Kind: "string", Summary: summary, Values: values}
}

func answer(status int, media, summary string) front.Answer {
	return front.Answer{Status: status, Media: media, Summary: summary}
}

// ok returns the answers of a route that normally answers 200 with JSON.
func ok(summary string, others ...front.Answer) []front.Answer {
	return append([]front.Answer{answer(200, front.MediaJSON, summary)}, others...)
}

// forceOf is the parameter force of a cancel.
var forceOf = flag("force", "of cancel: SIGKILL at once, without the grace period, also after a cancel")

// startupResponse is the answer while the daemon has not loaded every live operation.
var startupResponse = answer(503, front.MediaJSON, "The daemon is starting and cannot count yet; Retry-After says when to ask again")

// idAndQuery parses the ID and the query of a request about one operation, as front.Request.Query does.
func idAndQuery(r *front.Request, only ...string) (statefs.ID, *front.Query) {
	q := r.Query(only...)
	id, err := statefs.ParseID(r.Param("id"))
	q.Refuse(err)
	return id, q
}
