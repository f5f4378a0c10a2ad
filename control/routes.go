package control

import (
	"net/http"
	"slices"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
)

// handler answers one request. An error becomes a problem through refusalOf, so a handler that has written something
// must end its own answer and return nil.
type handler func(w *responseWriter, r *http.Request, p httprouter.Params) error

// parameter is a query parameter of a route.
type parameter struct {
	name    string
	kind    string // a type of JSON Schema
	summary string
	values  []string // the only valid values, if not empty
	needed  bool
}

// routeResponse is one possible response of a route.
type routeResponse struct {
	status  int
	media   string
	summary string
}

// route is one row of the route table.
type route struct {
	method  string
	path    string // :name is one segment, *name the rest
	handle  handler
	summary string
	query   []parameter
	answers []routeResponse
	body    string // what the body is, "" for none
	// confirm is set for a GET that changes something when it has parameters: pages of other sites may not send it, and
	// a browser that navigates to it gets a confirmation page from this handler.
	confirm handler
	// socket marks a WebSocket, which browsers let a page of any site open and read.
	socket bool
	// streams means that the answer may last as long as an operation.
	streams bool
	// lists means that the body may be a list, which has a higher size limit.
	lists bool
	// public means that no token is needed.
	public bool
}

const (
	mediaJSON = "application/json"
	mediaHTML = "text/html"
	mediaSSE  = "text/event-stream"
	mediaText = "text/plain"
	mediaFile = "application/octet-stream"
)

var (
	formats  = []string{"stream", "sse", "json"}
	formatOf = parameter{
		name: "format", kind: "string", values: formats,
		summary: "stream: header, log and footer as text (default); sse: server-sent events; json: waits and answers the footer",
	}
	offsetOf = parameter{
		name: "offset", kind: "integer",
		summary: "continue at this byte of the log file; header and <log> come again",
	}
	strictOf = parameter{
		name: "strict", kind: "boolean",
		summary: "409 for a request that would change nothing; without it 200, with changed: false",
	}
	forceOf = parameter{
		name: "force", kind: "boolean",
		summary: "of cancel: SIGKILL at once, without the grace period, also after a cancel",
	}
	waitOf = parameter{
		name: "wait", kind: "string",
		summary: "answer when it took effect, at most after this time (5s, 1m); without it at once",
	}
	stepOf = parameter{
		name: "step", kind: "string",
		summary: "the step that is meant; the one at which the operation stands when not given",
	}
	retryParameters = []parameter{
		{name: "step", kind: "string", summary: "go back to this step: it and all that need it are done again"},
		{
			name: "failed_items", kind: "boolean",
			summary: "of an ended one: do only the items that failed, and nothing that was never begun",
		},
		{
			name: "wait", kind: "string",
			summary: "of a live one: answer when it took effect, at most after this time (5s, 1m); without it at once. The new operation of an ended one is there when it is answered",
		},
	}
	pinParameters = []parameter{
		{name: "pinned", kind: "boolean", summary: "false ends it; true when not given"},
		{
			name: "wait", kind: "string",
			summary: "taken as everywhere; it is answered when it took effect, whether this is given or not",
		},
	}
	streamed = []routeResponse{
		{200, mediaSSE, "The stream; the header X-Jobdir-Operation has the ID"},
		{200, mediaJSON, "The footer, with format=json"},
		{
			202, mediaJSON,
			"With format=json: what is known of an operation that waits for a person, or has not ended when the time of the preference wait is over",
		},
	}
	// startupResponse is the answer while the daemon has not loaded every live operation.
	startupResponse = routeResponse{
		503, mediaJSON,
		"The daemon is starting and cannot count yet; Retry-After says when to ask again",
	}
	requested = []routeResponse{{
		200, mediaJSON,
		"It was carried out; took_effect says whether that changed anything",
	}, {202, mediaJSON, "The request is on disk"}}
)

// table returns every route of the server. The rows whose path begins with :group share one handler in the router,
// which does not allow a wildcard next to a fixed segment; that handler separates control and operations from jobs.
func (s *Server) table() []route {
	return slices.Concat(s.fixedRoutes(), s.actionRoutes(), s.lanesRoutes(), s.outboxRoutes(),
		s.uiRoutes(), s.groupRoutes())
}

func (s *Server) fixedRoutes() []route {
	return []route{
		{
			method: "GET", path: "/", handle: s.index, summary: "The jobs, as a page",
			answers: []routeResponse{{200, mediaHTML, "The page"}},
		},
		{
			method: "GET", path: "/healthz", handle: s.healthz, public: true, summary: "Whether the process answers",
			answers: []routeResponse{{200, mediaJSON, "It does"}},
		},
		{
			method: "GET", path: "/readyz", handle: s.readyz,
			summary: "Whether operations are accepted and carried out, how changes are noticed, and what is wrong with job definitions",
			answers: []routeResponse{{200, mediaJSON, "Ready"}, {503, mediaJSON, "Not ready"}},
		},
		{
			method: "GET", path: "/metrics", handle: s.serveMetrics,
			summary: "Counts and ages, in the text format of Prometheus",
			answers: []routeResponse{{200, mediaMetrics, "The metrics; while the daemon starts those alone that it knows"}},
		},
		{
			method: "GET", path: "/openapi.json", handle: s.openapi, summary: "This description",
			answers: []routeResponse{{200, mediaJSON, "OpenAPI 3.1"}},
		},
		{
			method: "GET", path: "/api/v1/jobs", handle: s.jobs, summary: "The jobs",
			answers: []routeResponse{{200, mediaJSON, "The jobs, with their parameters"}},
		},
		{
			method: "GET", path: "/api/v1/jobs/:group/:job", handle: s.job, summary: "One job",
			answers: []routeResponse{{
				200, mediaJSON,
				"The job, with its parameters, its steps in the order in which they are done, its milestones and its definition",
			}},
		},
		{
			method: "GET", path: "/api/v1/schedules", handle: s.schedules,
			summary: "The schedules of the jobs that start by themselves",
			answers: []routeResponse{{
				200, mediaJSON,
				"The schedules: when each starts next, what it started last, and why it started nothing",
			}},
		},
		{
			method: "POST", path: "/api/v1/schedules/:group/:job/enable", handle: s.switchSchedule(true),
			summary: "Let a job start by its schedule",
			answers: []routeResponse{{200, mediaJSON, "The schedule"}},
		},
		{
			method: "POST", path: "/api/v1/schedules/:group/:job/disable", handle: s.switchSchedule(false),
			summary: "Keep a job from starting by its schedule",
			answers: []routeResponse{{200, mediaJSON, "The schedule"}},
		},
		{
			method: "GET", path: "/api/v1/operations", handle: s.operations, summary: "The operations, live and ended",
			query: listParameters,
			answers: []routeResponse{{
				200, mediaJSON,
				"The operations, the newest first; X-Total-Count has the number of all that match, a lower bound when X-Total-Count-Exact is false",
			}, {503, mediaJSON, "The index of what has ended is being built; with limit=0 also while the daemon starts, which cannot count yet"}},
		},
		{
			method: "POST", path: "/api/v1/operations", handle: s.submitEntries, lists: true,
			summary: "Submit one operation, or a list of at most 10000, all or none",
			query: []parameter{{
				name: "wait", kind: "string",
				summary: "of one: answer when it has ended, at most after this time (5s, 1m); also as Prefer: wait=SECONDS",
			}},
			body: "{\"job\": \"group/name\", \"params\": {}, and the options by their names}, or an array of such objects",
			answers: []routeResponse{
				{
					201, mediaJSON,
					"The operation, or the ID, state and code (201, 200) of each; something is new",
				},
				{200, mediaJSON, "The same, and nothing is new"},
			},
		},
		{
			method: "GET", path: "/api/v1/finished", handle: s.finished,
			summary: "The completion feed: every end once, in the order of finished_seq",
			query: []parameter{
				{
					name: "after", kind: "integer",
					summary: "only those with a higher number: the member last of the answer before; 0 when not given",
				},
				{name: "wait", kind: "string", summary: "when there is none yet, wait for one so long (30s, at most 10m)"},
				{name: "limit", kind: "integer", summary: "how many, 1 to 1000; 200 when not given"},
			},
			answers: []routeResponse{
				{200, mediaJSON, "The ends, and the number to go on after"},
				{503, mediaJSON, "The index of what has ended is being built"},
			},
		},
		{
			method: "POST", path: "/api/v1/prune", handle: s.prune, summary: "Delete what the retention does not keep",
			query:   []parameter{{name: "dry_run", kind: "boolean", summary: "only say what would be deleted"}},
			answers: []routeResponse{{200, mediaJSON, "What was deleted, the first thousand of it by name"}},
		},
		{
			method: "GET", path: "/api/v1/operations/:id", handle: s.operation,
			summary: "The record of an operation, its state, progress and log length",
			query: []parameter{
				{
					name: "wait", kind: "string",
					summary: "answer when it has ended or waits for a person, at most after this time (5s, 1m); without it at once; also as Prefer: wait=SECONDS",
				},
				{
					name: "for", kind: "string", values: []string{forEnd, forRunning},
					summary: "what to wait for: running also answers when it runs; end when not given",
				},
			},
			answers: []routeResponse{{200, mediaJSON, "The operation"}},
		},
		{
			method: "GET", path: "/api/v1/operations/:id/stream", handle: s.joinStream, streams: true,
			summary: "The stream of an operation, live or ended",
			query:   []parameter{formatOf, offsetOf}, answers: streamed,
		},
		{
			method: "GET", path: "/api/v1/operations/:id/log", handle: s.logFile,
			summary: "The log as the work wrote it; takes Range",
			query: []parameter{
				{
					name: "step", kind: "string",
					summary: "only what this step wrote in its last run, also one with a log of its own",
				},
				{name: "run", kind: "integer", summary: "of a step: this run of it, one of those that X-Jobdir-Runs names"},
			},
			answers: []routeResponse{{200, mediaText, "The log"}, {206, mediaText, "A part of it"}},
		},
		{
			method: "GET", path: "/api/v1/operations/:id/artifacts/*name", handle: s.artifact,
			summary: "A file that the work left; takes Range",
			answers: []routeResponse{{200, mediaFile, "The file"}, {206, mediaFile, "A part of it"}},
		},
		{
			method: "POST", path: "/api/v1/bulk", handle: s.bulk,
			summary: "Pause, resume, cancel, retry or delete chosen operations, or all that match a filter, a thousand at a time",
			body:    "action, filter (an object of the parameters of a list) or ids (a list of at most a thousand), dry_run, and next of the answer before",
			answers: []routeResponse{
				{200, mediaJSON, "How many match, how many it was done to, and each failure"},
				startupResponse,
			},
		},
		{
			method: "GET", path: "/api/v1/stats", handle: s.stats,
			summary: "Counts by status, and of each lane: what runs and waits, for how long, and how long waiting and work took lately",
			answers: []routeResponse{{200, mediaJSON, "The counts, the lanes, and all lanes together"}, startupResponse},
		},
		{
			method: "GET", path: "/api/v1/events", handle: s.eventStream, streams: true,
			summary: "What happens, as server-sent events: transitions, progress, reasons to wait, lanes, sweeps; the id is the number to go on after",
			query:   eventParameters, answers: []routeResponse{{
				200, mediaSSE,
				"The events, until the client leaves, the daemon stops, or the client takes nothing for a minute: then the last one is a gap with the reason slow, whose id is the number to go on after",
			}},
		},
		{
			method: "GET", path: "/api/v1/ws", handle: s.eventSocket, streams: true, socket: true,
			summary: "The same events over a WebSocket, each as a text message",
			query:   eventParameters, answers: []routeResponse{{
				101, mediaJSON,
				"The events; a client that takes nothing for a minute, or answers no ping, gets a gap with the reason slow and the close status 1013",
			}, {426, mediaJSON, "It is not a WebSocket handshake"}},
		},
		{
			method: "POST", path: "/api/v1/sweep", handle: s.sweep, summary: "Remove state files that belong to nothing",
			query:   []parameter{{name: "dry_run", kind: "boolean", summary: "only say what would be removed"}},
			answers: []routeResponse{{200, mediaJSON, "What was found, and what was done with it"}},
		},
	}
}

// actionRoutes returns the routes of all actions on an operation, from the table of actions.
func (s *Server) actionRoutes() (rows []route) {
	for _, spec := range statefs.ActionSpecs() {
		row := route{
			method: "POST", path: "/api/v1/operations/:id/" + string(spec.Action), summary: spec.Endpoint,
			query: []parameter{waitOf, strictOf}, handle: s.requestAction, answers: requested,
		}
		switch {
		case spec.Endpoint == "":
			continue // a parameter of another action makes it
		case spec.Action == statefs.Retry:
			row.handle, row.query, row.body = s.retry, retryParameters, stepActionBody
			row.answers = append([]routeResponse{
				{201, mediaJSON, "The new operation; Location has its address"},
				{409, problemType, "There is nothing to do again, or nothing that a retry changes"},
			}, requested...)
		case spec.Action == statefs.Delete:
			row.method, row.path, row.handle, row.query = "DELETE", "/api/v1/operations/:id", s.remove, nil
			row.answers = []routeResponse{{204, mediaJSON, "It is gone"}}
		case spec.Action == statefs.Pin:
			row.handle, row.query, row.answers = s.pin, pinParameters, []routeResponse{{200, mediaJSON, "Done"}}
		case spec.OnStep:
			row.handle, row.query, row.body = s.stepAction, []parameter{stepOf, waitOf}, stepActionBody
			row.answers = append([]routeResponse{{409, problemType, "The operation is in a state that has no use for it"}},
				requested...)
		}
		if spec.Action == statefs.Set {
			row.body = `{"values": {"params.path": "/srv/a", "steps.split.outputs.count": 3}, "reason": "why", "by": "anna"}`
		}
		for _, param := range slices.Backward(spec.Params) {
			row.query = append([]parameter{{name: param.Name, kind: "integer", summary: param.About}}, row.query...)
		}
		if spec.Force != "" {
			row.query = append(row.query, forceOf)
		}
		rows = append(rows, row)
	}
	return rows
}

func (s *Server) groupRoutes() []route {
	control := []parameter{
		{name: "id", kind: "string", needed: true, summary: "the operation"},
		{name: "action", kind: "string", needed: true, values: controlActions, summary: "what to do"},
		{name: "step", kind: "string", summary: "of retry, skip, approve and reject: the step that is meant"},
		{name: "reason", kind: "string", summary: "of the same: why"},
		{name: "by", kind: "string", summary: "of the same: who asks, unless a token says it"},
		strictOf, forceOf,
	}
	return []route{
		{
			method: "GET", path: "/:group/control", handle: s.control, confirm: s.confirmControl,
			summary: "Pause, resume, cancel or retry a live operation of the group, or skip, approve or reject a step of it; without any parameter, a page; for a browser that navigates, a page that asks first",
			query:   control, answers: []routeResponse{{200, mediaJSON, "The request is on disk"}, {200, mediaHTML, "The page"}},
		},
		{
			method: "POST", path: "/:group/control", handle: s.control,
			summary: "Pause, resume, cancel or retry a live operation of the group, or skip, approve or reject a step of it",
			query:   control, answers: []routeResponse{{200, mediaJSON, "The request is on disk"}},
		},
		{
			method: "GET", path: "/:group/operations", handle: s.groupOperations,
			summary: "The live operations of the group, as the markers say",
			query: []parameter{{
				name: "endpoint", kind: "string",
				summary: "only those of this job, as {job} or {group}-{job}",
			}},
			answers: []routeResponse{{200, mediaJSON, "The operations"}},
		},
		{
			method: "GET", path: "/:group/:job", handle: s.startStream, confirm: s.confirmStart, streams: true,
			summary: "Start an operation and stream it, with the parameters of the job in the query; without any parameter, a page that documents the job; for a browser that navigates, a page that asks first",
			query:   []parameter{formatOf}, answers: append([]routeResponse{
				{200, mediaHTML, "The page"},
				{202, mediaJSON, "The operation, with Prefer: respond-async; Location has its address"},
			}, streamed...),
		},
		{
			method: "POST", path: "/:group/:job", handle: s.submit, summary: "Submit an operation",
			query: []parameter{
				{
					name: "wait", kind: "string",
					summary: "answer when it has ended, at most after this time (5s, 1m); without it at once; also as Prefer: wait=SECONDS",
				},
				{name: "tags", kind: "string", summary: "tags beside those of the job, separated by commas"},
				{name: "priority", kind: "integer", summary: "higher ones start first; that of the job when not given"},
				{name: "delay", kind: "string", summary: "do not start it before this time has passed (90s, 1h30m, 2d)"},
				{name: "not_before", kind: "string", summary: "do not start it before this time (RFC 3339)"},
				{name: "after", kind: "string", summary: "operations that it waits for, separated by commas"},
				{
					name: "require", kind: "string", values: []string{"success", "end"},
					summary: "what the end of those must be; success when not given",
				},
				{name: "key", kind: "string", summary: "the key in place of that of the job; an empty one is none"},
			},
			body: "The parameters of the job, as a JSON object; nothing is {}",
			answers: []routeResponse{
				{201, mediaJSON, "The new operation, with waiting when it is known already why it waits; Location has its address"},
				{200, mediaJSON, "The live operation that does the same, or the one that the Idempotency-Key names"},
			},
		},
	}
}
