package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/keys.md and the keys in the JSON Schema")

// TestKeysAreDocumented compares the JSON Schema and docs/keys.md with the tables of keys, from which they are
// generated.
func TestKeysAreDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	region := func(begin, end, want string) {
		before, rest, found := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has lost %q or %q", schemaFile, begin, end)
		}
		page = before + begin + want + end + after
	}
	// The table of the kinds of targets has the keys of deliver.
	_, deliver, _ := strings.Cut(page, "\n    \"deliver\": {")
	deliver, _, ended := strings.Cut(deliver, "\n    }")
	if !ended {
		t.Fatalf("%s has lost deliver", schemaFile)
	}
	region("\n  \"properties\": {\n", "\n  },\n", properties(t, jobKeys, inJob, "    ", map[string]string{
		"deliver": `"deliver": {` + deliver + "\n    }",
	}))
	defs := "\n    \"step\": {\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n" +
		"      \"required\": [\"name\"],\n      \"properties\": {\n"
	region(defs, "\n      },\n", properties(t, jobKeys, inStep, "        ", nil))
	region(strings.Replace(strings.Replace(defs, "step", "param", 1), "name", "type", 1), "\n      },\n",
		properties(t, paramKeys, 0, "        ", nil))
	refused := []string{"            \"approve\": {\"const\": true}"}
	for _, k := range jobKeys {
		if k.in&inStep != 0 && k.in&inGate == 0 {
			refused = append(refused, fmt.Sprintf("            %q: false", k.name))
		}
	}
	region("          \"required\": [\"approve\"],\n          \"properties\": {\n", "\n          }\n", strings.Join(refused, ",\n"))
	excluded := []string{`{"required": ["run"]}`, `{"required": ["items"]}`}
	for _, k := range jobKeys {
		if k.in&ofCommand != 0 {
			excluded = append(excluded, fmt.Sprintf(`{"required": [%q]}`, k.name))
		}
	}
	for indent, more := range map[string]string{"      ": `, {"required": ["steps"]}`, "          ": ""} {
		region("\n"+indent+"\"required\": [\"handler\"],\n"+indent+"\"not\": {\"anyOf\": [", "]}\n",
			strings.Join(excluded, ", ")+more)
	}
	compare(t, schemaFile, string(data), page)

	const reference = "../docs/keys.md"
	data, _ = os.ReadFile(reference)
	compare(t, reference, string(data), keysPage())
}

func compare(t *testing.T, file, got, want string) {
	t.Helper()
	switch {
	case got == want:
	case !*update:
		t.Errorf("%s differs from the tables of keys: run make generate", file)
	default:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// properties are the properties of a JSON Schema, one for each key; written has the properties that stay unchanged.
func properties(t *testing.T, keys table, in scope, indent string, written map[string]string) string {
	t.Helper()
	var list []string
	for _, k := range keys {
		switch {
		case k.in&in != in:
		case written[k.name] != "":
			list = append(list, indent+written[k.name])
		default:
			list = append(list, fmt.Sprintf("%s%q: {%s}", indent, k.name, k.members(t, in, indent)))
		}
	}
	return strings.Join(list, ",\n")
}

// members are the members of the JSON Schema of a key.
func (k key) members(t *testing.T, in scope, indent string) string {
	t.Helper()
	help, otherwise := k.meaning(in)
	if otherwise != "" && !strings.HasPrefix(otherwise, "it is required") {
		help += " Default: " + otherwise + "."
	}
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	if err := e.Encode(help); err != nil {
		t.Fatal(err)
	}
	description := `"description": ` + strings.TrimSpace(quoted.String()) + ", "
	schema := k.schema
	if k.keys != nil {
		schema = `"type": "object", "additionalProperties": false` + schema + ", \"properties\": {\n" +
			properties(t, k.keys, 0, indent+"  ", nil) + "\n" + indent + "}"
	}
	switch {
	case in == inStep && k.name == "items": // may have outputs of steps
		return description + `"$ref": "#/$defs/stepItems"`
	case in == inStep && k.in&inJob != 0:
		return description + fmt.Sprintf(`"$ref": "#/properties/%s"`, k.name)
	case k.list != "":
		schema = `"type": "array"` + k.list + `, "items": {` + schema + "}"
	case k.short != "":
		schema = fmt.Sprintf(`"oneOf": [{"const": %q}, {%s}]`, k.short, schema)
	}
	if k.preset != "" {
		schema += `, "default": ` + k.preset
	}
	return description + schema
}

// meaning is what a key means in one scope, and what happens without it.
func (k key) meaning(in scope) (help, otherwise string) {
	if in != inStep || k.in&inJob == 0 {
		return k.help, k.otherwise
	}
	if otherwise = k.otherwise; !slices.Contains([]string{"run", "items", "handler", "parallel", "summary"}, k.name) {
		otherwise = "as the job"
	}
	return cmp.Or(k.stepHelp, k.help), otherwise
}

func keysPage() string {
	var page strings.Builder
	page.WriteString(`<!-- Generated from catalog/job_keys.go by "make generate"; do not edit. -->

# Keys of a job file

A job is one YAML document. "jobdir validate FOLDER" checks the files of a folder; editors take the
same keys from [schema/job.schema.json](../schema/job.schema.json). [jobs.md](jobs.md) shows how they
work together.

`)
	section := func(title string, keys table, in scope) {
		fmt.Fprintf(&page, "## %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", title)
		for _, k := range keys {
			if k.in&in != in {
				continue
			}
			help, otherwise := k.meaning(in)
			if k.preset != "" && otherwise == "" {
				otherwise = "`" + strings.Trim(k.preset, `"`) + "`"
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", k.name, k.what, otherwise, strings.ReplaceAll(help, "*", `\*`))
		}
		page.WriteString("\n")
	}
	section("Keys of a job", jobKeys, inJob)
	section("Keys of a step", jobKeys, inStep)
	section("Keys of a parameter", paramKeys, 0)
	for _, k := range jobKeys {
		if k.keys != nil {
			section("Keys of `"+k.name+"`", k.keys, 0)
		}
	}
	return strings.TrimSuffix(page.String(), "\n")
}

// The JSON Schema has the same bounds.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for text, longest := range map[string]int{
		"group: g\nname: n\nhandler: %s":                                       127,
		"group: g\nname: n\nrun: [x]\nparams: {%s: {type: string}}":            63,
		"group: g\nname: n\nrun: [x]\ntags: [%s]":                              64,
		"group: g\nname: n\nrun: [x]\nlimits: [%s]":                            63,
		"group: g\nname: n\nrun: [x]\nretry: {}\nexit_codes: {final: [%s]}":    63,
		"group: g\nname: n\nsteps: [{name: %s, run: [x]}]":                     63,
		"group: g\nname: n\nsteps: [{name: s, run: [x], outputs: [%s]}]":       63,
		"group: g\nname: n\nsteps: [{name: s, run: [x], milestone: %s}]":       63,
		"group: gggggggggggggggggggggggggggggg\nname: %s\nrun: [x]\nretry: {}": 32,
	} {
		for n := longest; n <= longest+1; n++ {
			job := fmt.Appendf(nil, text, strings.Repeat("a", n))
			if _, err := Parse("f", job); (err == nil) != (n == longest) {
				t.Errorf("%d characters in %q: %v", n, text, err)
			}
			if err := accepts(t, s, job); (err == nil) != (n == longest) && !strings.Contains(text, "gg") {
				t.Errorf("the schema: %d characters in %q: %v", n, text, err)
			}
		}
	}
}
