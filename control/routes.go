package control

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

var (
	formatOf = choice("format", formats,
		"stream: header, log and footer as text (default); sse: server-sent events; json: waits and answers the footer")
	offsetOf        = number("offset", "continue at this byte of the log file; header and <log> come again")
	strictOf        = flag("strict", "409 for a request that would change nothing; without it 200, with changed: false")
	waitOf          = text("wait", "answer when it took effect, at most after this time (5s, 1m); without it at once")
	stepOf          = text("step", "the step that is meant; the one at which the operation stands when not given")
	retryParameters = []front.Parameter{
		text("step", "go back to this step: it and all that need it are done again"),
		flag("failed_items", "of an ended one: do only the items that failed, and nothing that was never begun"),
		text("wait",
			"of a live one: answer when it took effect, at most after this time (5s, 1m); without it at once. The new operation of an ended one is there when it is answered"),
	}
	pinParameters = []front.Parameter{
		flag("pinned", "false ends it; true when not given"),
		text("wait", "taken as everywhere; it is answered when it took effect, whether this is given or not"),
	}
	streamed = []front.Answer{
		answer(200, front.MediaSSE, "The stream; the header X-Jobdir-Operation has the ID"),
		answer(200, front.MediaJSON, "The footer, with format=json"),
		answer(202, front.MediaJSON, "With format=json: what is known of an operation that waits for a person, or has not ended when the time of the preference wait is over"),
	}
	requested = ok("It was carried out; took_effect says whether that changed anything", answer(202, front.MediaJSON, "The request is on disk"))
)

// table returns every route of the server.
func (s *Server) table() []front.Route {
	return slices.Concat(s.fixedRoutes(), s.actionRoutes(), s.lanes.routes(), s.outbox.routes(),
		uiRoutes(), s.groupRoutes())
}

func (s *Server) fixedRoutes() []front.Route {
	return []front.Route{
		{
			Method: "GET", Path: "/", Handle: s.pages.index, Summary: "The jobs, as a page",
			Answers: []front.Answer{answer(200, front.MediaHTML, "The page")},
		},
		{
			Method: "GET", Path: "/healthz", Handle: s.health.healthz, Public: true, Summary: "Whether the process answers",
			Answers: ok("It does"),
		},
		{
			Method: "GET", Path: "/readyz", Handle: s.health.readyz,
			Summary: "Whether operations are accepted and carried out, how changes are noticed, and what is wrong with job definitions",
			Answers: ok("Ready", answer(503, front.MediaJSON, "Not ready")),
		},
		{
			Method: "GET", Path: "/metrics", Handle: s.figures.serveMetrics,
			Summary: "Counts and ages, in the text format of Prometheus",
			Answers: []front.Answer{answer(200, mediaMetrics, "The metrics; while the daemon starts, only what it knows by then")},
		},
		{
			Method: "GET", Path: "/openapi.json", Handle: s.openapi, Summary: "This description",
			Answers: ok("OpenAPI 3.1"),
		},
		{
			Method: "GET", Path: "/api/v1/jobs", Handle: s.pages.jobs, Summary: "The jobs",
			Answers: ok("The jobs, with their parameters"),
		},
		{
			Method: "GET", Path: "/api/v1/jobs/:group/:job", Handle: s.pages.job, Summary: "One job",
			Answers: ok("The job, with its parameters, its steps in the order in which they are done, its milestones and its definition"),
		},
		{
			Method: "GET", Path: "/api/v1/schedules", Handle: s.schedules.schedules,
			Summary: "The schedules of the jobs that start by themselves",
			Answers: ok("The schedules: when each starts next, what it started last, and why it started nothing"),
		},
		{
			Method: "POST", Path: "/api/v1/schedules/:group/:job/enable", Handle: s.schedules.switchSchedule(true),
			Summary: "Let a job start by its schedule",
			Answers: ok("The schedule"),
		},
		{
			Method: "POST", Path: "/api/v1/schedules/:group/:job/disable", Handle: s.schedules.switchSchedule(false),
			Summary: "Keep a job from starting by its schedule",
			Answers: ok("The schedule"),
		},
		{
			Method: "GET", Path: "/api/v1/operations", Handle: s.lists.operations, Summary: "The operations, live and ended",
			Query:   listParameters,
			Answers: ok("The operations, the newest first; X-Total-Count has the number of all that match, a lower bound when X-Total-Count-Exact is false", answer(503, front.MediaJSON, "The index of what has ended is being built; with limit=0 also while the daemon starts, which cannot count yet")),
		},
		{
			Method: "POST", Path: "/api/v1/operations", Handle: s.start.submitEntries, List: submit.MaxEntries,
			Summary: "Submit one operation, or a list of at most 10000, all or none",
			Query: []front.Parameter{
				text("wait", "of one: answer when it has ended, at most after this time (5s, 1m); also as Prefer: wait=SECONDS"),
			},
			Body: "{\"job\": \"group/name\", \"params\": {}, and the options by their names}, or an array of such objects",
			Answers: []front.Answer{
				answer(201, front.MediaJSON, "The operation, or the ID, state and code (201, 200) of each; something is new"),
				answer(200, front.MediaJSON, "The same, and nothing is new"),
			},
		},
		{
			Method: "GET", Path: "/api/v1/finished", Handle: s.lists.finished,
			Summary: "The completion feed: every end once, in the order of finished_seq",
			Query: []front.Parameter{
				number("after", "only those with a higher number: the member last of the answer before; 0 when not given"),
				text("wait", "when there is none yet, wait for one so long (30s, at most 10m)"),
				number("limit", "how many, 1 to 1000; 200 when not given"),
			},
			Answers: ok("The ends, and the number to go on after",
				answer(503, front.MediaJSON, "The index of what has ended is being built")),
		},
		{
			Method: "POST", Path: "/api/v1/prune", Handle: s.retention.prune, Summary: "Delete what the retention does not keep",
			Query:   []front.Parameter{flag("dry_run", "only say what would be deleted")},
			Answers: ok("What was deleted, the first thousand of it by name"),
		},
		{
			Method: "GET", Path: "/api/v1/operations/:id", Handle: s.lists.operation,
			Summary: "The record of an operation, its state, progress and log length",
			Query: []front.Parameter{
				text("wait",
					"answer when it has ended or waits for a person, at most after this time (5s, 1m); without it at once; also as Prefer: wait=SECONDS"),
				choice("for", []string{forEnd, forRunning}, "what to wait for: running also answers when it runs; end when not given"),
			},
			Answers: ok("The operation"),
		},
		{
			Method: "GET", Path: "/api/v1/operations/:id/stream", Handle: s.streams.joinStream, Streams: true,
			Summary: "The stream of an operation, live or ended",
			Query:   []front.Parameter{formatOf, offsetOf}, Answers: streamed,
		},
		{
			Method: "GET", Path: "/api/v1/operations/:id/log", Handle: s.streams.logFile,
			Summary: "The log as the work wrote it; takes Range",
			Query: []front.Parameter{
				text("step", "only what this step wrote in its last run, also one with a log of its own"),
				number("run", "this run of a step, from X-Jobdir-Runs"),
			},
			Answers: []front.Answer{answer(200, front.MediaText, "The log"), answer(206, front.MediaText, "A part of it")},
		},
		{
			Method: "GET", Path: "/api/v1/operations/:id/artifacts/*name", Handle: s.streams.artifact,
			Summary: "A file that the work left; takes Range",
			Answers: []front.Answer{answer(200, front.MediaFile, "The file"), answer(206, front.MediaFile, "A part of it")},
		},
		{
			Method: "POST", Path: "/api/v1/bulk", Handle: s.bulks.bulk,
			Summary: "Pause, resume, cancel, retry or delete chosen operations, or all that match a filter, a thousand at a time",
			Body:    "action, filter (an object of the parameters of a list) or ids (a list of at most a thousand), dry_run, and next of the answer before",
			Answers: ok("How many match, how many it was done to, and each failure", startupResponse),
		},
		{
			Method: "GET", Path: "/api/v1/stats", Handle: s.figures.stats,
			Summary: "Counts by status, and of each lane: what runs and waits, for how long, and how long waiting and work took lately",
			Answers: ok("The counts, the lanes, and all lanes together", startupResponse),
		},
		{
			Method: "GET", Path: "/api/v1/events", Handle: s.events.eventStream, Streams: true,
			Summary: "What happens, as server-sent events: transitions, progress, reasons to wait, lanes, sweeps; the id is the number to go on after",
			Query:   eventParameters, Answers: []front.Answer{answer(200, front.MediaSSE, "The events, until the client leaves, the daemon stops, or the client takes nothing for a minute: then the last one is a gap with the reason slow, whose id is the number to go on after")},
		},
		{
			Method: "GET", Path: "/api/v1/ws", Handle: s.events.eventSocket, Streams: true, Socket: true,
			Summary: "The same events over a WebSocket, each as a text message",
			Query:   eventParameters, Answers: []front.Answer{answer(101, front.MediaJSON, "The events; a client that takes nothing for a minute, or answers no ping, gets a gap with the reason slow and the close status 1013"), answer(426, front.MediaJSON, "It is not a WebSocket handshake")},
		},
		{
			Method: "POST", Path: "/api/v1/sweep", Handle: s.health.sweep, Summary: "Remove state files that belong to nothing",
			Query:   []front.Parameter{flag("dry_run", "only say what would be removed")},
			Answers: ok("What was found, and what was done with it"),
		},
	}
}

// openapi is GET /openapi.json.
func (s *Server) openapi(w *front.Response, _ *front.Request) error {
	return w.SendJSON(http.StatusOK, json.RawMessage(s.document))
}

// actionRoutes returns the routes of all actions on an operation, from the table of actions.
func (s *Server) actionRoutes() (rows []front.Route) {
	for _, spec := range statefs.ActionSpecs() {
		row := front.Route{
			Method: "POST", Path: "/api/v1/operations/:id/" + string(spec.Action), Summary: spec.Endpoint,
			Query: []front.Parameter{waitOf, strictOf}, Handle: s.act.requestAction, Answers: requested,
		}
		switch {
		case spec.Endpoint == "":
			continue // a parameter of another action makes it
		case spec.Action == statefs.Retry:
			row.Handle, row.Query, row.Body = s.retry.retry, retryParameters, stepActionBody
			row.Answers = append([]front.Answer{
				answer(201, front.MediaJSON, "The new operation; Location has its address"),
				answer(409, front.ProblemType, "There is nothing to do again, or nothing that a retry changes"),
			}, requested...)
		case spec.Action == statefs.Delete:
			row.Method, row.Path, row.Handle, row.Query = "DELETE", "/api/v1/operations/:id", s.retention.remove, nil
			row.Answers = []front.Answer{answer(204, front.MediaJSON, "It is gone")}
		case spec.Action == statefs.Pin:
			row.Handle, row.Query, row.Answers = s.retention.pin, pinParameters, ok("Done")
		case spec.OnStep:
			row.Handle, row.Query, row.Body = s.act.stepAction, []front.Parameter{stepOf, waitOf}, stepActionBody
			row.Answers = append([]front.Answer{answer(409, front.ProblemType, "The operation is in a state that has no use for it")},
				requested...)
		}
		if spec.Action == statefs.Set {
			row.Body = `{"values": {"params.path": "/srv/a", "steps.split.outputs.count": 3}, "reason": "why", "by": "anna"}`
		}
		for _, param := range slices.Backward(spec.Params) {
			row.Query = append([]front.Parameter{number(param.Name, param.About)}, row.Query...)
		}
		if spec.Force != "" {
			row.Query = append(row.Query, forceOf)
		}
		rows = append(rows, row)
	}
	return rows
}

func (s *Server) groupRoutes() []front.Route {
	control := []front.Parameter{
		{Name: "id", Kind: "string", Needed: true, Summary: "the operation"},
		{Name: "action", Kind: "string", Needed: true, Values: controlActions, Summary: "what to do"},
		text("step", "of retry, skip, approve and reject: the step that is meant"),
		text("reason", "of the same: why"),
		text("by", "of the same: who asks, unless a token says it"),
		strictOf, forceOf,
	}
	return []front.Route{
		{
			Method: "GET", Path: "/:group/control", Handle: s.act.control, Confirm: s.act.confirmControl,
			Summary: "Pause, resume, cancel or retry a live operation of the group, or skip, approve or reject a step of it; without any parameter, a page; for a browser that navigates, a page that asks first",
			Query:   control, Answers: ok("The request is on disk", answer(200, front.MediaHTML, "The page")),
		},
		{
			Method: "POST", Path: "/:group/control", Handle: s.act.control,
			Summary: "Pause, resume, cancel or retry a live operation of the group, or skip, approve or reject a step of it",
			Query:   control, Answers: ok("The request is on disk"),
		},
		{
			Method: "GET", Path: "/:group/operations", Handle: s.lists.groupOperations,
			Summary: "The live operations of the group, as the markers say",
			Query:   []front.Parameter{text("endpoint", "only those of this job, as {job} or {group}-{job}")},
			Answers: ok("The operations"),
		},
		{
			Method: "GET", Path: "/:group/:job", Handle: s.start.startStream, Confirm: s.start.confirmStart, Streams: true,
			Summary: "Start an operation and stream it, with the parameters of the job in the query; without any parameter, a page that documents the job; for a browser that navigates, a page that asks first",
			Query:   []front.Parameter{formatOf}, Answers: append([]front.Answer{
				answer(200, front.MediaHTML, "The page"),
				answer(202, front.MediaJSON, "The operation, with Prefer: respond-async; Location has its address"),
			}, streamed...),
		},
		{
			Method: "POST", Path: "/:group/:job", Handle: s.start.submit, Summary: "Submit an operation",
			Query: []front.Parameter{
				text("wait",
					"answer when it has ended, at most after this time (5s, 1m); without it at once; also as Prefer: wait=SECONDS"),
				text("tags", "tags beside those of the job, separated by commas"),
				number("priority", "higher ones start first; that of the job when not given"),
				text("delay", "do not start it before this time has passed (90s, 1h30m, 2d)"),
				text("not_before", "do not start it before this time (RFC 3339)"),
				text("after", "operations that it waits for, separated by commas"),
				choice("require", []string{"success", "end"}, "what the end of those must be; success when not given"),
				text("key", "the key in place of that of the job; an empty one is none"),
			},
			Body: "The parameters of the job, as a JSON object; nothing is {}",
			Answers: []front.Answer{
				answer(201, front.MediaJSON, "The new operation, with waiting when it is known already why it waits; Location has its address"),
				answer(200, front.MediaJSON, "The live operation that does the same, or the operation of the Idempotency-Key"),
			},
		},
	}
}
