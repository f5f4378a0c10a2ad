package catalog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

const schemaFile = "../schema/job.schema.json"

// semanticOnly are the invalid files that a JSON Schema cannot find, with why.
var semanticOnly = map[string]string{
	"duplicate_key":           "a parsed object has each key once",
	"endpoint_long":           "the sum of two lengths",
	"range_backwards":         "compares two values",
	"range_string_param":      "follows a reference",
	"range_optional":          "follows a reference",
	"glob_optional":           "follows a reference",
	"glob_bad":                "the grammar of patterns",
	"glob_folder":             "the grammar of patterns",
	"unknown_reference":       "follows a reference",
	"reference_no_params":     "follows a reference",
	"item_without_items":      "the meaning of a reference",
	"item_in_dir":             "the meaning of a reference",
	"param_default_range":     "compares two values",
	"param_default_enum":      "compares two values",
	"param_default_pattern":   "compares two values",
	"param_case":              "compares two names",
	"param_min_max":           "compares two values",
	"param_pattern":           "the grammar of RE2",
	"param_pattern_group":     "the grammar of RE2",
	"param_enum_rule":         "compares two values",
	"max_log_huge":            "arithmetic",
	"grace_zero":              "arithmetic",
	"timeout_zero":            "arithmetic",
	"restart_adopt_handler":   "compares two values",
	"restart_resume_run":      "compares two values",
	"retry_cap_short":         "compares two values",
	"exit_codes_twice":        "compares two lists",
	"deadline_zero":           "arithmetic",
	"schedule_never":          "the grammar of cron lines",
	"schedule_every":          "the grammar of cron lines",
	"schedule_zone":           "the database of time zones",
	"schedule_params":         "compares two keys",
	"anchor":                  "a schema sees the value, not how YAML spells it",
	"tag_yaml":                "a schema sees the value, not how YAML spells it",
	"merge":                   "a schema sees the value, not how YAML spells it",
	"text_after_marker":       "a schema sees the value, not how YAML spells it",
	"normalize_enum":          "compares two values",
	"param_object_default":    "arithmetic",
	"key_id":                  "the meaning of a reference",
	"key_param":               "follows a reference",
	"unique_by":               "follows a reference",
	"then_param":              "follows a reference",
	"nul":                     "a NUL is a character of JSON",
	"error_match":             "the grammar of RE2",
	"item_in_job_env":         "the meaning of a reference",
	"milestone_twice":         "compares two values",
	"milestones_step":         "follows a name",
	"milestones_twice":        "compares two values",
	"output_form":             "the meaning of a reference",
	"output_in_job_env":       "the meaning of a reference",
	"output_in_key":           "the meaning of a reference",
	"output_in_range":         "follows a reference",
	"output_in_then":          "the meaning of a reference",
	"output_not_before":       "follows a reference",
	"output_of_gate":          "follows a reference",
	"output_of_itself":        "follows a reference",
	"output_of_none":          "follows a reference",
	"output_unknown_step":     "follows a reference",
	"output_unset":            "follows a reference",
	"output_without_steps":    "the meaning of a reference",
	"step_circle":             "follows names",
	"step_circle_of_optional": "follows names",
	"step_item_alone":         "the meaning of a reference",
	"step_needs_itself":       "compares two values",
	"step_needs_optional":     "follows a name",
	"step_needs_unknown":      "follows a name",
	"step_on_stall":           "compares two keys, of which the job may have one",
	"step_param":              "follows a reference",
	"step_restart":            "compares two values",
	"step_twice":              "compares two values",
	"deliver_artifacts":       "compares two keys",
	"deliver_same_place":      "compares two values",
	"deliver_artifact_name":   "compares two keys",
	"deliver_port":            "arithmetic",

	"deliver_unknown_reference":     "the meaning of a reference",
	"deliver_unknown_reference_url": "the meaning of a reference",
	"deliver_s3_timeout":            "arithmetic",
	"deliver_key_item":              "the meaning of a reference",
	"deliver_key_optional":          "follows a reference",
	"deliver_key_param":             "follows a reference",
	"deliver_header_reference":      "the meaning of a reference",
	"deliver_timeout":               "arithmetic",
	"deliver_url_host":              "the meaning of a reference",
	"when_bare_param":               "the language of conditions",
	"when_name":                     "the language of conditions",
	"when_bare_step":                "the language of conditions",
	"when_computed":                 "the language of conditions",
	"when_dash":                     "the language of conditions",
	"when_env":                      "the language of conditions",
	"when_equal":                    "the language of conditions",
	"when_filter":                   "the language of conditions",
	"when_function":                 "the language of conditions",
	"when_let":                      "the language of conditions",
	"when_loop":                     "the language of conditions",
	"when_member":                   "the language of conditions",
	"when_mismatch":                 "the language of conditions",
	"when_not_before":               "the language of conditions",
	"when_now":                      "the language of conditions",
	"when_output":                   "the language of conditions",
	"when_param":                    "the language of conditions",
	"when_params_alone":             "the language of conditions",
	"when_pattern":                  "the language of conditions",
	"when_pattern_bad":              "the language of conditions",
	"when_range":                    "the language of conditions",
	"when_reference":                "the language of conditions",
	"when_status_word":              "the language of conditions",
	"when_step":                     "the language of conditions",
	"when_syntax":                   "the language of conditions",
	"when_type":                     "the language of conditions",
}

func schema(tb testing.TB) *jsonschema.Schema {
	tb.Helper()
	c := jsonschema.NewCompiler()
	s, err := c.Compile(schemaFile)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func corpus(tb testing.TB, dir string) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no files in testdata/%s: %v", dir, err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".yaml")] = data
	}
	return out
}

// accepts reports whether the schema accepts every document of a file, which is parsed by the YAML library
// alone, without the loader.
func accepts(tb testing.TB, s *jsonschema.Schema, data []byte) error {
	tb.Helper()
	documents, problem := yamlfile.Split("corpus", data)
	if problem != nil {
		documents = []yamlfile.Document{{Text: data}}
	}
	for _, doc := range documents {
		if doc.Blank() {
			continue
		}
		var value any
		if err := yaml.UnmarshalWithOptions(doc.Text, &value, yaml.AllowDuplicateMapKey()); err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			return err
		}
		if err := s.Validate(instance); err != nil {
			return err
		}
	}
	return nil
}

func TestValidFilesPassLoaderAndSchema(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for name, data := range corpus(t, "valid") {
		t.Run(name, func(t *testing.T) {
			defs, err := Parse(name+".yaml", data)
			if err != nil {
				t.Fatalf("loader: %v", err)
			}
			if err := accepts(t, s, data); err != nil {
				t.Errorf("schema: %v", err)
			}
			for _, d := range defs {
				checkStable(t, d)
			}
		})
	}
}

// checkStable holds that the kept text alone gives the same definition again.
func checkStable(tb testing.TB, d *Definition) {
	tb.Helper()
	again, err := Parse("kept.yaml", d.Source())
	if err != nil || len(again) != 1 {
		tb.Fatalf("parse of the source: %d definitions, %v", len(again), err)
	}
	a, b := *again[0], *d
	a.at, a.handlerAt, b.at, b.handlerAt = Position{}, Position{}, Position{}, Position{}
	a.hints, b.hints = nil, nil
	for _, d := range slices.Concat(a.Deliver, b.Deliver) {
		d.at = Position{}
	}
	for _, then := range []*Then{a.Then, b.Then} {
		if then != nil {
			then.at = Position{}
			for i := range then.Params {
				then.Params[i].at = Position{}
			}
		}
	}
	a.Steps, b.Steps = withoutPlaces(a.Steps), withoutPlaces(b.Steps)
	if !reflect.DeepEqual(a, b) || again[0].Hash() != d.Hash() {
		tb.Errorf("parse of the source differs:\n%+v\n%+v", a, b)
	}
}

// withoutPlaces leaves out what differs between two files, and compiled expressions, which hold functions.
func withoutPlaces(list []*Step) []*Step {
	var out []*Step
	for _, s := range list {
		c := *s
		c.at = Position{}
		if c.Work != nil {
			work := *c.Work
			work.at, work.handlerAt = Position{}, Position{}
			c.Work = &work
		}
		if c.condition != nil {
			c.condition = &condition.Condition{Uses: c.condition.Uses}
		}
		out = append(out, &c)
	}
	return out
}

func TestInvalidFilesFailLoaderAndSchema(t *testing.T) {
	t.Parallel()
	s := schema(t)
	files := corpus(t, "invalid")
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			first, _, _ := strings.Cut(string(data), "\n")
			want := name + ".yaml:" + strings.TrimPrefix(first, "# ")
			defs, err := Parse(name+".yaml", data)
			if err == nil {
				t.Fatalf("the loader accepts it: %+v", defs)
			}
			if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasPrefix(first, want) {
				t.Errorf("first problem:\n got %s\nwant %s", first, want)
			}
			_, listed := semanticOnly[name]
			switch err := accepts(t, s, data); {
			case err == nil && !listed:
				t.Error("the schema accepts it, and it is not listed as semantic only")
			case err != nil && listed:
				t.Errorf("the schema finds it, though it is listed as semantic only: %v", err)
			}
		})
	}
	for name := range semanticOnly {
		if _, ok := files[name]; !ok {
			t.Errorf("semantic only: there is no file %s", name)
		}
	}
}
