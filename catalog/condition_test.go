package catalog

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/statefs/steps"
)

// conditional is a job whose last step has a condition.
func conditional(when string) ([]*Definition, error) {
	text, _ := json.Marshal(when) // a JSON string is one of YAML
	return Parse("f.yaml", fmt.Appendf(nil, `group: g
name: n
params:
  dry: {type: boolean, default: false}
  count: {type: integer, default: 3}
  ratio: {type: number, default: 0.5}
  title: {type: string, required: true}
  list: {type: array, default: [a, 2, true]}
  deep: {type: object, default: {a: {b: [1]}}}
  note: {type: string}
steps:
  - {name: split, run: [x], outputs: [parts, names, big]}
  - {name: up-load, needs: [split], run: [x]}
  - {name: last, needs: [up-load], run: [x], when: %s}
`, text))
}

func TestConditionsAreJudged(t *testing.T) {
	t.Parallel()
	list := []steps.Step{
		{Name: "split", Status: steps.Succeeded, Outputs: map[string]json.RawMessage{
			"parts": json.RawMessage("12"), "names": json.RawMessage(`["a.mp4", {"n": 1.5, "m": 9007199254740993}]`),
			"big": json.RawMessage(`"` + strings.Repeat("x", param.MaxString) + `"`),
		}},
		{Name: "up-load", Status: steps.Skipped},
	}
	for when, want := range map[string]string{
		`params.dry`:                                          "false",
		`not params.dry and params.count == 3`:                "true",
		`params.count in [1, 2, 3]`:                           "true",
		`params.count + 1 > 4`:                                "false",
		`params.ratio * 2 == 1`:                               "true",
		`params.ratio < params.count`:                         "true",
		`params.title == "A ${id}"`:                           "",
		`params.title startsWith "A " && true`:                "true",
		`lower(params.title) contains "b"`:                    "true",
		`params.title matches "^A [B-Z]$"`:                    "true",
		`"a" in params.list and 2 in params["list"]`:          "true",
		`len(params.list) == 3`:                               "true",
		`params.list[2]`:                                      "true",
		`params.list[7]`:                                      "index out of range: 7 (array length is 3)",
		`params.deep.a.b[0] == 1`:                             "true",
		`params.deep.x == nil`:                                "true",
		`params.deep.x.y == nil`:                              "cannot fetch y from",
		`params.note == nil`:                                  "true",
		`(params.note ?? "none") == "none"`:                   "true",
		`params.note contains "x"`:                            "false",
		`params.note`:                                         "false",
		`steps.split.outputs.parts > 10`:                      "true",
		`steps.split.outputs.parts == 12`:                     "true",
		`steps.split.outputs.parts == "12"`:                   "false",
		`int(steps.split.outputs.parts) % 5 == 2`:             "true",
		`steps.split.outputs.parts`:                           "its value is neither true nor false",
		`steps.split.outputs.names[0] endsWith ".mp4"`:        "true",
		`steps.split.outputs.names[1].n == 1.5`:               "true",
		`steps.split.outputs.names[1].m == 9007199254740993`:  "true",
		`steps.split.outputs.big == nil`:                      "steps.split.outputs.big is longer than 64KiB",
		`steps.split.status == "succeeded"`:                   "true",
		`steps["up-load"].status != "skipped"`:                "false",
		`steps["up-load"].status in ["skipped", "succeeded"]`: "true",
		`id == "ID" ? params.dry : true`:                      "false",
		`1 % 0 == 1`:                                          "integer divide by zero",
	} {
		defs, err := conditional(when)
		if err != nil {
			if want != "" || !strings.Contains(err.Error(), "when is an expression, in which ${ and } have no meaning") {
				t.Errorf("%s: %v", when, err)
			}
			continue
		}
		d := defs[0]
		params, err := d.BindJSON([]byte(`{"title": "A B"}`))
		if err != nil {
			t.Fatal(err)
		}
		v := Values{Params: params, ID: "ID", Steps: list}
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				holds, err := d.Step("last").Holds(v)
				got := strconv.FormatBool(holds)
				if err != nil {
					got = err.Error()
					if holds || !strings.HasPrefix(got, "when of step last: ") || strings.Contains(got, "\n") {
						t.Errorf("%s: %v %q", when, holds, got)
					}
				}
				if err == nil && got != want || err != nil && !strings.Contains(got, want) {
					t.Errorf("%s: %s, want %s", when, got, want)
				}
			})
		}
		wait.Wait()
	}
	if holds, err := publish(t).Step("ingest").Holds(Values{}); !holds || err != nil {
		t.Errorf("a step without a condition: %v %v", holds, err)
	}
}

func TestAConditionOfASkippedStep(t *testing.T) {
	t.Parallel()
	defs,
		err := conditional(`steps.split.outputs.parts == nil and steps.split.status == "skipped" and (steps.split.outputs.parts ?? 7) == 7`)
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[steps.Status]bool{steps.Skipped: true, steps.Succeeded: false} {
		holds, err := defs[0].Step("last").Holds(Values{Steps: []steps.Step{{Name: "split", Status: status}}})
		if holds != want || err != nil {
			t.Errorf("%s: %v %v", status, holds, err)
		}
	}
}

// What could take long or much is no condition. There is no clock in this test: what is refused is not begun.
func TestConditionsAreBounded(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`len(1..1000000000) > 1`, `all(params.list, all(params.list, true))`, `reduce(params.list, #acc + #, "") == ""`,
		`let a = id + id; let b = a + a; b == id`, `2 ** 100000 > 1`, `2 ^ 3 == 8`, `repeat(id, 1000000000) == id`,
		`map(params.list, #) == []`,
		`count(params.list, true) > 1`, `now() == nil`, `date("2020-01-01") == nil`, `fromJSON("1") == 1`,
		`toJSON(params) == ""`, `get($env, "id") == ""`,
		`sum([1]) == 1`, `sort([1]) == []`, `split(id, "") == []`, `{"a": 1}.a == 1`, `id[0:1] == ""`, `(true; false)`,
		`bitand(1, 2) == 1`,
		`params.list.foo()`, `id()`, `params.title matches lower("A")`, strings.Repeat("(", 400) + "true" +
			strings.Repeat(")", 400) + strings.Repeat(" or true", 30),
	} {
		if _, err := conditional(when); err == nil {
			t.Errorf("%.60s is taken", when)
		} else if !strings.Contains(err.Error(), "f.yaml:14:52: when") {
			t.Errorf("%.60s: %v", when, err)
		}
	}
	if _, err := conditional(strings.Repeat("(", 400) + "true" + strings.Repeat(")", 400)); err != nil {
		t.Errorf("a deep one: %v", err)
	}
}

func TestTooManySteps(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	all.WriteString("group: g\nname: n\nsteps:\n")
	for i := range maxSteps {
		fmt.Fprintf(&all, "- {name: s%d, needs: [s%d], run: [x]}\n", i, min(i+1, maxSteps-1))
	}
	text := strings.Replace(all.String(), fmt.Sprintf("s%d, needs: [s%d]", maxSteps-1, maxSteps-1),
		fmt.Sprintf("s%d, needs: [a]", maxSteps-1), 1)
	if _, err := Parse("f.yaml", []byte(strings.Replace(text, "needs: [a]", "when: id == id", 1))); err != nil {
		t.Errorf("%d steps: %v", maxSteps, err)
	}
	if _, err := Parse("f.yaml", []byte(text+"- {name: a, run: [x]}\n")); err == nil ||
		!strings.Contains(err.Error(), "f.yaml:260:3: the job has more than 256 steps") {
		t.Errorf("%d steps: %v", maxSteps+1, err)
	}
}

func FuzzCondition(f *testing.F) {
	for _, when := range []string{
		`params.dry`, `not params.dry and params.count in [1, 2]`, `steps.split.outputs.names[0].n == 1.5`,
		`steps["up-load"].status != "skipped"`,
		`(steps.split.outputs.parts ?? "x") matches "^a+$"`, `len(params.list) % 2 == 0 ? id == "" : true`,
		`if params.dry { true } else { false }`, `1..2`,
	} {
		f.Add(when)
	}
	list := []steps.Step{{Name: "split", Status: steps.Succeeded, Outputs: map[string]json.RawMessage{
		"parts": json.RawMessage(`"aa"`), "names": json.RawMessage(`[{"n": 1.5}, null, [true]]`),
	}}, {Name: "up-load", Status: steps.Skipped}}
	f.Fuzz(func(t *testing.T, when string) {
		defs, err := conditional(when)
		if err != nil {
			return
		}
		params, err := defs[0].BindJSON([]byte(`{"title": "A"}`))
		if err != nil {
			t.Fatal(err)
		}
		v := Values{Params: params, ID: "ID", Steps: list}
		before, _ := json.Marshal(list)
		holds, err := defs[0].Step("last").Holds(v)
		again, err2 := defs[0].Step("last").Holds(v)
		if holds != again || fmt.Sprint(err) != fmt.Sprint(err2) || err != nil && holds {
			t.Errorf("%q: %v %v, then %v %v", when, holds, err, again, err2)
		}
		if after, _ := json.Marshal(list); string(after) != string(before) {
			t.Errorf("%q changes the steps", when)
		}
	})
}
