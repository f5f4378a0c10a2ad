package catalog

import (
	"time"

	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/statefs"
)

// jobKeys are the keys of a job and of a step.
var jobKeys = table{
	row("group", inJob, "it is required", custom("name", groupSchema, readGroup),
		"First part of the job's address GROUP/NAME. GROUP-NAME is the endpoint name, at most 63 characters long; two "+
			"jobs cannot share one."),
	row("name", inJob, "it is required", custom("name", nameSchema, readName),
		"Second part of the job's address GROUP/NAME."),
	row("name", inStep|inGate, "it is required", custom("name", `"$ref": "#/$defs/stepName"`, readStepName),
		"Its name, unique in the job."),
	row("summary", inBoth|inGate, "",
		held(func(d *Definition) *string { return &d.Summary }, "text", `"type": "string"`, readSummary),
		"What it does, in a sentence."),
	row("params", inJob, "none", custom("mapping of names to rules", paramsSchema, readParams),
		"Parameters by name, in the order in which they are shown. Use one as ${params.NAME} or as the environment "+
			"variable JOBDIR_PARAM_NAME, the name in capitals. No two names may differ by case alone."),
	row("tags", inJob, "", custom("list of texts", tagsSchema, readTags),
		"Words to find operations by."),
	row("needs", inStep|inGate, "none", custom("list of steps", `"$ref": "#/$defs/stepNames"`, readNeeds),
		"Steps that are done before it begins; a required step cannot need an optional one."),
	row("optional", inStep|inGate, "", boolean(func(s *Step) *bool { return &s.Optional }),
		"Whether it runs beside and after the required steps. It never blocks, delays or fails the operation; when it "+
			"needs a person, the operation is trailing until one acts."),
	row("approve", inStep|inGate, "", boolean(func(s *Step) *bool { return &s.Approve }),
		"Whether a person has to approve before it begins. With it a step needs no work: it is a gate and nothing else."),
	row("when", inStep|inGate, "it always runs",
		custom("expression", `"type": "string", "pattern": "\\S", "maxLength": 1000`, readWhen),
		"A condition. If it is false the step is skipped, and the steps that need it go on. It knows params.NAME, "+
			"steps.NAME.outputs.NAME, steps.NAME.status (succeeded or skipped) and id, compared with == != < > <= >= in "+
			"contains startsWith endsWith matches, joined by and, or, not, with + - * / % ?? and len, lower, upper, trim, "+
			"int, float. What has no value is nil."),
	row("milestone", inStep|inGate, "", custom("name", `"$ref": "#/$defs/milestone"`, readMilestone),
		"The phase of the operation once the step is done."),
	row("dir", inBoth|ofCommand, "the daemon's working directory",
		held(func(d *Definition) *string { return &d.Dir }, "path", `"type": "string", "minLength": 1`, (*jobDecoder).path),
		"Folder in which commands run and where relative paths of items begin. May hold ${params.NAME} and ${id}."),
	row("env", inBoth|ofCommand, "", custom("mapping of names to texts", envSchema, readEnv),
		"Environment variables of the command. Values may hold ${params.NAME}, ${item} and ${id}.").step(
		"Environment variables beside those of the job; of two with one name this one counts."),
	row("run", inBoth, "",
		held(func(d *Definition) *[]string { return &d.Run }, "list of arguments", runSchema, readRun),
		"The command: a program and its arguments, one element each, never read by a shell. Elements may hold "+
			"${params.NAME}, ${item} and ${id}. Write \"--\" before a value that could begin with \"-\".").step(
		"The command. Elements may hold ${params.NAME}, ${item}, ${id} and ${steps.NAME.outputs.NAME} of steps that come " +
			"before this one."),
	row("items", inBoth, "",
		mapping(itemsKeys, `, "minProperties": 1, "maxProperties": 1`, func(d *Definition) { d.Items = &Items{} }, checkItems),
		"Runs the command once for each item; ${item} is its name. It has one of the keys."),
	row("parallel", inBoth, "",
		integer(func(d *Definition) *int { return &d.Parallel }, 1, 256, "1", "it is 1 to 256"),
		"How many items are worked on at the same time."),
	row("handler", inBoth, "", custom("name", handlerSchema, readHandler),
		"Name of a Go function that is registered in the program, instead of a command."),
	row("max_log", inJob, "no limit", custom("bytes", bytesSchema, readMaxLog),
		"Size of the log beyond which the run ends: bytes, or with a unit (kB, MB, GB, TB, KiB, MiB, GiB, TiB)."),
	row("fail_when", inBoth, "",
		word(func(d *Definition) *FailWhen { return &d.FailWhen }, FailNever, FailAny, FailAll, FailNever),
		"When failed items make the whole of it failed, once retry allows no further attempt. never: the result is "+
			"partial."),
	row("on_disconnect", inJob, "",
		word(func(d *Definition) *OnDisconnect { return &d.OnDisconnect }, DisconnectContinue, DisconnectContinue,
			DisconnectCancel, DisconnectPause),
		"What happens to the work when the connection that started it with a streaming GET is closed."),
	row("grace", inBoth, "the daemon's",
		duration(func(d *Definition) *time.Duration { return &d.Grace }, maxGrace, "for the daemon's own"),
		"Time from SIGTERM to SIGKILL, more than 0 and at most 24h: 500ms, 10s, 1m30s."),
	row("timeout", inBoth, "no limit",
		duration(func(d *Definition) *time.Duration { return &d.Timeout }, maxTimeout, "for no limit"),
		"How long one attempt may take, paused time not counted, at most 8760h."),
	row("stall_after", inBoth, "the daemon's, which is off unless its configuration says otherwise",
		held(func(d *Definition) *time.Duration { return &d.StallAfter }, "duration or off",
			`"oneOf": [{"$ref": "#/$defs/duration"}, {"const": "off"}]`, readStallAfter),
		"Time without output and without progress after which it is shown as stalled, at most 8760h, or off."),
	row("on_stall", inBoth, "it is only shown",
		word(func(d *Definition) *OnStall { return &d.OnStall }, "", StallCancel, StallRetry),
		"What is done with stalled work: cancel the operation, or end the run as a failed attempt."),
	row("restart", inBoth, "adopt for run, resume for items and handler",
		word(func(d *Definition) *Restart { return &d.restart }, "", RestartAdopt, RestartResume, RestartRetry, RestartFail),
		"What becomes of work that was cut off. adopt: the command went on under the keeper, and the next daemon adopts "+
			"it. resume: it goes on at the first unfinished item. retry: a new run while attempts remain, else failed. "+
			"fail: failed."),
	row("retry", inBoth, "one attempt", mapping(retryKeys, retryRules, nil, checkRetry),
		"How often the work is tried: every failure is tried again while attempts remain, unless exit_codes say "+
			"otherwise. Items that failed are done again."),
	row("crash_limit", inBoth, "that of the daemon, 5 within 10m", mapping(crashLimitKeys, "", nil, inheritCrashLimit),
		"How often work may die: killed by a signal, lost with its keeper, or cut off because the daemon or the machine "+
			"crashed. The death with the number burst within that time leaves the operation to a person as failed_manual."),
	row("queue_timeout", inJob, "no limit",
		duration(func(d *Definition) *time.Duration { return &d.QueueTimeout }, maxTimeout, "for no limit"),
		"How long an operation may wait in the queue at a stretch before it ends as failed, at most 8760h."),
	row("deadline", inJob, "never",
		duration(func(d *Definition) *time.Duration { return &d.Deadline }, maxTimeout, "for no limit"),
		"How long after its submit an operation ends as failed, wherever it stands, at most 8760h."),
	row("exit_codes", inBoth, "77 and 78 are manual", exitCodes(),
		"What is done when an attempt fails with these exit codes (1 to 255) or error codes (such as timeout, signal, "+
			"stalled, handler_failed). sysexits: 69, 71, 74 and 75 are retryable, 77 and 78 manual. Where retry is given, "+
			"every other failure is tried again while attempts remain."),
	row("errors", inStep, "the exit code says it",
		form{
			what: "list of mappings", keys: errorKeys, list: `, "minItems": 1, "maxItems": 64`, schema: errorRules,
			read: readErrors,
		},
		"What kind of failure it is by what the work wrote: the first expression that matches one of the last lines "+
			"counts."),
	row("outputs", inStep, "later steps can use nothing of it", custom("list of names", outputsSchema, readOutputs),
		"Members of its result that later steps may use as ${steps.NAME.outputs.OUTPUT}. A result without one of them is "+
			"a failure. Not with items, because each item has a result of its own."),
	row("lane", inBoth, "",
		form{
			what: "name", preset: `"` + statefs.DefaultLane + `"`, schema: `"$ref": "#/$defs/queueName", "not": {"const": "all"}`,
			read: readLane, clear: func(d *Definition) { d.Lane = statefs.DefaultLane },
		},
		"The queue it waits in, which has a capacity. The daemon's configuration has the lanes.").step(
		"The queue it waits in, instead of that of the job, for its time alone."),
	row("limits", inBoth, "", custom("list of names", limitsSchema, readLimits),
		"Named semaphores, across lanes; a start takes one place of each. The daemon's configuration has them.").step(
		"Limits that it takes beside those of the job, for its time alone."),
	row("key", inJob, "no key", custom("text", keySchema, readKey),
		"Operations with the same key, of whatever job, never run together and start in the order in which they were "+
			"submitted, also across lanes. An operation that is paused, delayed, to be tried again or waits for a person "+
			"holds up those behind it. May hold ${params.NAME}; an empty key is none. At most 512 bytes."),
	row("key_order", inJob, "",
		word(func(d *Definition) *KeyOrder { return &d.KeyOrder }, KeyBySubmit, KeyBySubmit, KeyByPriority, KeyAnyOrder),
		"submit: as they were submitted. priority: the highest priority first. any: the first that can start; operations "+
			"that cannot start let it pass. Where operations of a key differ in it, submit comes before priority and "+
			"priority before any."),
	row("priority", inJob, "",
		integer(func(d *Definition) *int { return &d.Priority }, -statefs.MaxPriority, statefs.MaxPriority, "0",
			"it is -1000000 to 1000000, higher ones start first"),
		"Higher ones start first. A submit may give another one."),
	row("unique", inJob, "", mapping(uniqueKeys, uniqueRules, nil, nil),
		"What a submit gets when an operation of this job with the same parameters is scheduled, queued, running, paused "+
			"or waits for its next attempt. Starting with a streaming GET always makes a new one."),
	row("schedule", inJob, "",
		mapping(scheduleKeys, `, "required": ["cron"]`, func(d *Definition) { d.Schedule = &Schedule{} }, checkCron),
		"When the job starts by itself. Each time that the line means is a slot, and fires once."),
	row("then", inJob, "",
		mapping(thenKeys, `, "required": ["job"]`, func(d *Definition) { d.Then = &Then{} }, checkThen),
		"The job that is submitted when an operation is completed, once."),
	row("steps", inJob, "", custom("list of steps", stepsSchema, nil),
		"The steps of one operation, each with a status of its own. Required ones run one after another, each after all "+
			"that it needs; optional ones beside and after them."),
	row("milestones", inJob, "", custom("mapping of names to lists of steps", milestonesSchema, readMilestones),
		"Phases by name that are reached when all of a set of steps are done."),
	row("deliver", inJob, "nowhere",
		custom("list of targets", "", func(j *jobDecoder, n *yamlfile.Node, _ string) { j.deliver(n) }),
		"Where the result is stored when an operation ends, at least once each. See docs/outbox.md."),
	row("unsafe_shell", inJob, "", word(func(d *Definition) *string { return &d.unsafeShell }, "", "allow"),
		"allow: references inside the script of sh -c, python -c and the like are meant, so that validate and serve do "+
			"not warn of them."),
}

var itemsKeys = table{
	sub("glob", "", custom("pattern", `"type": "string", "minLength": 1`, readGlob),
		"Every regular file that matches: *, ?, [a-z], {a,b}, and ** for any depth. Links are not followed, dot folders "+
			"only entered when named. A relative pattern begins in dir."),
	sub("list", "", custom("path", `"type": "string", "minLength": 1`, readItemList),
		"A text file: every line that is not empty is an item. A relative path begins in dir."),
	sub("range", "", custom("list of two integers", rangeSchema, readRange),
		"The numbers from the first to the last, both included; each is a number or \"${params.NAME}\" of an integer "+
			"parameter."),
}

var retryKeys = table{
	sub("max_attempts", "",
		integer(func(d *Definition) *int { return &d.Retry.MaxAttempts }, 1, UnboundedAttempts, "1",
			"it counts the first attempt too: 1 to 1000000"),
		"Attempts that may fail, time out or die, the first one too."),
	sub("initial", "the next attempt begins at once",
		duration(func(d *Definition) *time.Duration { return &d.Retry.Initial }, maxWait, "to try again at once"),
		"Wait after the first failure, at most 720h."),
	sub("factor", "", number(func(d *Definition) *float64 { return &d.Retry.Factor }, 1, 100, DefaultRetryFactor),
		"By how much each further wait is longer."),
	sub("cap", "10m, or initial when that is longer",
		duration(func(d *Definition) *time.Duration { return &d.Retry.Cap }, maxWait, "for 10m"),
		"The longest wait, at most 720h."),
	sub("jitter", "", number(func(d *Definition) *float64 { return &d.Retry.Jitter }, 0, 1, DefaultRetryJitter),
		"The part of a wait that is left to chance: 0.2 waits 80 to 100 % of it."),
	sub("retry_for", "no bound",
		duration(func(d *Definition) *time.Duration { return &d.Retry.For }, maxTimeout, "for no bound"),
		"No attempt begins later than this after the start of the first failed attempt, at most 8760h. Without "+
			"max_attempts it alone bounds the attempts."),
}

var crashLimitKeys = table{
	sub("burst", "the daemon's",
		integer(func(d *Definition) *int { return &d.CrashLimit.Burst }, 1, MaxCrashBurst, "",
			"the death with this number stops the work: 1 to 100"),
		"The number of the death that stops the work."),
	sub("within", "the daemon's",
		duration(func(d *Definition) *time.Duration { return &d.CrashLimit.Within }, MaxCrashWithin,
			"for the daemon's own"),
		"How long a death counts, at most 720h."),
}

var uniqueKeys = table{
	sub("on_hit", "",
		word(func(d *Definition) *OnHit { return &d.Unique.OnHit }, HitReturn, HitReturn, HitReject, HitNext, HitOff),
		"return: that operation. reject: a refusal that names it. next: while it runs one further operation, which "+
			"waits, and then that one. off: a new operation each time."),
	sub("by", "all of them",
		custom("list of parameters",
			`"type": "array", "minItems": 1, "uniqueItems": true, "items": {"type": "string"}`, readUniqueBy),
		"The parameters that make operations equal."),
}

var scheduleKeys = table{
	sub("cron", "it is required", custom("text", `"type": "string", "minLength": 1`, readText),
		"Five fields (minute, hour, day of the month, month, day of the week), six with seconds in front, or @yearly, "+
			"@monthly, @weekly, @daily, @hourly."),
	sub("timezone", "", form{what: "text", preset: `"UTC"`, schema: `"type": "string"`, read: readText},
		"A name of the database of time zones, such as Europe/Berlin."),
	sub("jitter", "none",
		duration(func(d *Definition) *time.Duration { return &d.Schedule.Jitter }, maxJitter, "to start on time"),
		"By how much a start may be later than its slot, at most 24h: the same for the same slot."),
	sub("overlap", "",
		word(func(d *Definition) *schedule.Overlap { return &d.Schedule.Overlap }, schedule.OverlapSkip, schedule.OverlapSkip,
			schedule.OverlapQueue, schedule.OverlapCancel),
		"What is done about a slot while the operation of an earlier one has not ended: it is passed over, waits for "+
			"that, or has that cancelled and waits for the end."),
	sub("missed", "",
		word(func(d *Definition) *schedule.Missed { return &d.Schedule.Missed }, schedule.MissedOnce, schedule.MissedSkip,
			schedule.MissedOnce, schedule.MissedAll),
		"What is done about slots that passed while no daemon ran: nothing, the newest fires once for all, or each "+
			"fires, the newest 100, one after the other also with overlap skip."),
	sub("params", "",
		custom("mapping of names to texts", `"type": "object", "additionalProperties": {"$ref": "#/$defs/written"}`,
			readScheduleParams),
		"The parameters of the starts."),
}

var thenKeys = table{
	sub("job", "it is required",
		custom("GROUP/NAME", `"type": "string", "maxLength": 63, "pattern": "^[a-z0-9][a-z0-9_-]*/[a-z0-9][a-z0-9_-]*$"`,
			readThenJob),
		"Its address."),
	sub("params", "",
		custom("mapping of names to values",
			`"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}`, readThenParams),
		"Its parameters. A text may hold ${params.X}, ${id} and ${result.X}, a member of the footer; a text that is only "+
			"a reference gives the value as it is."),
}

// Members of the JSON Schema of values that have a reader of their own.
const (
	groupSchema = `"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$", "maxLength": 61, ` +
		`"not": {"enum": ["api", "ui", "healthz", "readyz", "metrics", "openapi.json", "control", "operations"]}`
	nameSchema = `"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$", "maxLength": 61, ` +
		`"not": {"enum": ["control", "operations"]}`
	paramsSchema = `"type": "object", "propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9_]{0,62}$", ` +
		`"not": {"enum": ["format", "offset", "wait", "id", "action"]}}, ` +
		`"additionalProperties": {"$ref": "#/$defs/param"}`
	tagsSchema = `"type": "array", "minItems": 1, "uniqueItems": true, ` +
		`"items": {"type": "string", "pattern": "^[^\\s,\\x00-\\x1f\\x7f]{1,64}$"}`
	envSchema = `"type": "object", "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", ` +
		`"not": {"pattern": "^JOBDIR_"}}, "additionalProperties": {"$ref": "#/$defs/written"}`
	runSchema = `"type": "array", "minItems": 1, "prefixItems": [{"$ref": "#/$defs/written", "not": {"const": ""}}], ` +
		`"items": {"$ref": "#/$defs/written"}`
	rangeSchema   = `"type": "array", "minItems": 2, "maxItems": 2, "items": {"$ref": "#/$defs/bound"}`
	handlerSchema = `"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./-]{0,126}$"`
	bytesSchema   = `"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", ` +
		`"pattern": "^[0-9]{1,19} ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?$", "not": {"pattern": "^0+ ?[A-Za-z]*$"}}]`
	retryRules   = `, "dependentRequired": {"factor": ["initial"], "cap": ["initial"], "jitter": ["initial"]}`
	limitsSchema = `"type": "array", "minItems": 1, "maxItems": 16, "uniqueItems": true, ` +
		`"items": {"$ref": "#/$defs/queueName"}`
	keySchema   = `"$ref": "#/$defs/written", "minLength": 1, "maxLength": 512`
	uniqueRules = `, "not": {"properties": {"on_hit": {"const": "off"}}, "required": ["on_hit", "by"]}`
	errorRules  = `, "required": ["match"], "anyOf": [{"required": ["class"]}, {"required": ["code"]}]`

	outputsSchema = `"type": "array", "minItems": 1, "maxItems": 64, "uniqueItems": true, ` +
		`"items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"}`
	stepsSchema = `"type": "array", "minItems": 1, "maxItems": 256, "items": {"$ref": "#/$defs/step"}, ` +
		`"contains": {"not": {"properties": {"optional": {"const": true}}, "required": ["optional"]}}`
	milestonesSchema = `"type": "object", "propertyNames": {"$ref": "#/$defs/milestone"}, ` +
		`"additionalProperties": {"$ref": "#/$defs/stepNames"}`
)
