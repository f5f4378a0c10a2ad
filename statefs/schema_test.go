package statefs

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/jobdir/jobdir/statefs/steps"
)

const schemaFile = "../schema/record.schema.json"

// TestSchemaNamesEveryMember compares the published schema with the type, so that a new member must
// be added to both.
func TestSchemaNamesEveryMember(t *testing.T) {
	t.Parallel()
	var schema struct {
		Required   []string
		Properties map[string]struct {
			Description string
			Enum        []string
		}
	}
	data, err := os.ReadFile(schemaFile)
	check(t, err)
	check(t, json.Unmarshal(data, &schema))
	var required []string
	for field := range reflect.TypeFor[Record]().Fields() {
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if schema.Properties[name].Description == "" {
			t.Errorf("%s does not describe %q", schemaFile, name)
		}
		if !strings.Contains(rest, "omitempty") && name != "params" {
			required = append(required, name)
		}
	}
	for name := range schema.Properties {
		if !knownMembers[name] {
			t.Errorf("%s describes %q, which no record has", schemaFile, name)
		}
	}
	slices.Sort(required)
	if slices.Sort(schema.Required); !slices.Equal(required, schema.Required) {
		t.Errorf("required are %v, a record always has %v", schema.Required, required)
	}
	var states, live []string
	for _, state := range States() {
		states = append(states, string(state))
		if state.Live() {
			live = append(live, string(state))
		}
	}
	for name, want := range map[string][]string{"status": states, "next": live} {
		if got := schema.Properties[name].Enum; !slices.Equal(got, want) {
			t.Errorf("%s may be %v, want %v", name, got, want)
		}
	}
}

func TestRecordsFollowTheSchema(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(schemaFile)
	check(t, err)
	o := own(t)
	rec := end(t, o)
	total, code, at := int64(3), 7, testTime
	rec.Batch = &rec.ID
	rec.RetryOf, rec.FinishedAt, rec.StartedAt, rec.HeartbeatAt = &rec.ID, &at, &at, &at
	rec.Progress = &Progress{Done: 1, Total: &total, At: at}
	rec.Error, rec.ExitCode, rec.Result = &Fault{"exit", "exit code 7"}, &code, Failure
	rec.FailedAttempts = []FailedAttempt{{4, "split", "exit_code", "exit code 7", at}}
	rec.Resources, rec.FinishedSeq, rec.Pinned = &ResourceUse{UserSeconds: 1}, 9, true
	rec.CreatedBy, rec.Key, rec.Lane, rec.OnDisconnect, rec.Tags = "me", "one", "cookie", "pause", []string{"a", "b"}
	rec.IdempotencyKey, rec.Limits, rec.KeyOrder, rec.After, rec.Require, rec.NotBefore = "k-1", []string{"yt-dlp"},
		"submit", []ID{rec.ID}, RequireSuccess, &at
	rec.StalledAt, rec.NeedsPersonSeq, rec.DiedAt, rec.Backoff, rec.Phase, rec.Reason = &at, 8, []time.Time{at}, 2,
		"half", "marker missing"
	rec.Host, rec.Boot, rec.PID, rec.Artifacts, rec.Signal, rec.FailedItems = "here", "b", 7,
		[]string{"a/b"}, "SIGKILL", true
	rec.Run, rec.Starts, rec.Attempts, rec.Interrupts, rec.Rescues, rec.PausedSeconds, rec.Processed, rec.FailedN = 4,
		4, 1, 2, 1, 0.5, 2, 1
	rec.Then = &Follower{ID: rec.ID, Error: "none"}
	rec.Deliveries = []Delivery{{
		Place: 1, Kind: "folder", Send: "result", State: DeliveryDelivered, Name: "a.json", Error: "none",
		Output: &DeliveryOutput{
			"/srv/a.json", 7, "ab", at, "b", "a.json", "e", 1, []StoredFile{{"a", "a.json", 7, "ab", "e"}},
		},
	}}
	values := map[string]json.RawMessage{"params.n": json.RawMessage("3")}
	rec.Trailing, rec.RedoFrom = true, 2
	rec.Corrected = map[string]json.RawMessage{"n": json.RawMessage("3")}
	rec.ActionRecords = []steps.ActionRecord{{
		Action: "set", Step: "split", By: "me", At: at, RequestedAt: at,
		Reason: "wrong", Values: values,
	}}
	rec.Steps = []steps.Step{{
		Name: "split", Status: steps.FailedRetryable, Optional: true, Run: 3, Retries: 2, ItemsFrom: 2, RedoFrom: 3,
		Attempts: 1, DiedAt: []time.Time{at}, StartedAt: &at, EndedAt: &at, DueAt: &at,
		ErrorCode: "exit_code", ErrorMessage: "exit code 1", Reason: "not wanted", Outputs: values, ApprovedBy: "me",
		ApprovedAt: &at, Lane: "cookie",
		Limits: []string{"yt-dlp"}, LogFrom: 1, LogTo: 2, Log: "x.log",
		Earlier: []steps.EarlierRun{{Run: 1, LogFrom: 1, LogTo: 2}},
	}}
	rec.Warnings, rec.DueAt, rec.RetryUntil, rec.LaneTurn, rec.LSN = 2, &at, &at, 3, 12
	rec.Footer, rec.LogBytes, rec.Definition = json.RawMessage(`{"result":"failure"}`), &total, strings.Repeat("a", 64)
	rec.Extra = map[string]json.RawMessage{"colour": json.RawMessage(`"red"`)}
	for name, r := range map[string]*Record{"new": submit(t, o.Tree), "ended": rec} {
		data, err := marshalRecord(r)
		check(t, err)
		if err := validate(schema, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for field, value := range reflect.ValueOf(rec).Elem().Fields() {
		if value.IsZero() && field.Name != "Next" && field.Name != "Priority" { // a finished record has neither
			t.Errorf("%s is not set, so nothing says that the schema allows it", field.Name)
		}
	}
	data, err := marshalRecord(rec)
	check(t, err)
	var members map[string]json.RawMessage
	check(t, json.Unmarshal(data, &members))
	for name, wrong := range map[string]string{
		"version": "2", "id": `"x"`, "status": `"resting"`, "created_at": `"yesterday"`, "run": "-1",
		"finished_seq": "0", "params": "[]",
		"retry_of": `"../x"`, "tags": `"a"`, "stalled_at": "0", "died_at": `["monday"]`,
		"deliveries": `[{"target":0,"kind":"folder","send":"result","status":"pending"}]`, "on_disconnect": `"stop"`,
		"pinned": `"yes"`, "next": `"failed"`, "transitions": `[{"to":"queued"}]`, "exit_code": "256", "result": `"maybe"`,
		"canonical_params": "{}", "idempotency_key": "1", "limits": `"a"`, "key_order": `"fifo"`, "after": `["x"]`,
		"require": `"luck"`, "steps": `[{"name":"x","status":"half","retries":0}]`, "acts": `[{"ask":"x"}]`,
		"corrected": "[]", "not_before": `"soon"`,
	} {
		broken := maps.Clone(members)
		broken[name] = json.RawMessage(wrong)
		data, err := json.Marshal(broken)
		check(t, err)
		if validate(schema, data) == nil {
			t.Errorf("%s may be %s", name, wrong)
		}
	}
}

func validate(schema *jsonschema.Schema, data []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}
