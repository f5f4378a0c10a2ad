package outbox

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the keys of targets in docs/outbox.md and in the JSON Schema")

// TestReference compares what is generated from the table of kinds: their keys in the JSON Schema of a job, and in
// docs/outbox.md.
func TestReference(t *testing.T) {
	t.Parallel()
	for _, page := range []struct{ path, begin, end, want string }{
		{
			"../../schema/job.schema.json", "        \"maxProperties\": 1,\n        \"properties\": {\n", "\n        }\n",
			schemaOfKinds(t),
		},
		{
			"../../schema/record.schema.json", `"kind": {"description": "What the target is.", "enum": [`, `]}`,
			`"` + strings.Join(namesOfKinds(), `", "`) + `"`,
		},
		{"../../docs/outbox.md", "<!-- begin keys: make generate writes them -->\n", "<!-- end keys -->\n", tablesOfKinds()},
	} {
		data, err := os.ReadFile(page.path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, found := strings.Cut(string(data), page.begin)
		got, after, ended := strings.Cut(rest, page.end)
		switch {
		case !found || !ended:
			t.Errorf("%s has lost %q or %q", page.path, page.begin, page.end)
		case got == page.want:
		case !*update:
			t.Errorf("%s differs from the keys of the kinds of targets: run make generate", page.path)
		default:
			data := []byte(before + page.begin + page.want + page.end + after)
			if err := os.WriteFile(page.path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func namesOfKinds() []string {
	var names []string
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return names
}

func tablesOfKinds() string {
	var b strings.Builder
	table := func(keys []Key) {
		b.WriteString("\n| key | type | default | meaning |\n|---|---|---|---|\n")
		for _, k := range keys {
			preset := ""
			if k.Default != "" {
				preset = "`" + k.Default + "`"
			}
			if k.Required != "" {
				preset = "required"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Type, preset, k.Help)
		}
		b.WriteString("\n")
	}
	b.WriteString("\nKeys of all targets:\n")
	table(SharedKeys)
	for _, k := range Kinds {
		fmt.Fprintf(&b, "**`%s`**: %s\n", k.Name, k.Help)
		table(k.Keys)
	}
	return b.String()
}

// fixedText refuses references in a text.
const fixedText = `"not": {"pattern": "\\$\\{(id|item|params\\.[^{}$\n]*|steps\\.[^{}$\n]*)\\}"}`

func schemaOfKinds(t *testing.T) string {
	t.Helper()
	kinds := make([]string, 0, len(Kinds))
	for _, k := range Kinds {
		var required, properties, exclusive []string
		for _, key := range k.AllKeys() {
			if key.Required != "" {
				required = append(required, key.Name)
			}
			properties = append(properties, fmt.Sprintf("              %q: {%s}", key.Name, schemaOf(t, key)))
			if secret, is := strings.CutSuffix(key.Name, "_file"); is && key.Either != "" {
				exclusive = append(exclusive, fmt.Sprintf(`{"required": [%q, %q]}`, secret+"_file", secret+"_env"))
			}
		}
		members := []string{
			`"description": ` + text(t, k.Help), `"type": "object"`, `"additionalProperties": false`,
		}
		if len(required) > 0 {
			members = append(members, `"required": `+text(t, required))
		}
		members = append(members, "\"properties\": {\n"+strings.Join(properties, ",\n")+"\n            }")
		if len(exclusive) > 0 {
			members = append(members, `"not": {"anyOf": [`+strings.Join(exclusive, ", ")+`]}`)
		}
		kinds = append(kinds, fmt.Sprintf("          %q: {\n            %s\n          }", k.Name,
			strings.Join(members, ",\n            ")))
	}
	return strings.Join(kinds, ",\n")
}

// schemaOf returns the members of the schema of a key.
func schemaOf(t *testing.T, k Key) string {
	t.Helper()
	members := []string{`"description": ` + text(t, strings.ReplaceAll(k.Help, "`", "")+".")}
	add := func(format string, args ...any) { members = append(members, fmt.Sprintf(format, args...)) }
	secretName := text(t, SecretName.String())
	switch k.Type {
	case TextKey:
		add(`"type": "string"`)
		if k.Pattern != "" {
			add(`"pattern": %s`, text(t, string(k.Pattern)))
		}
	case PathKey, SecretFileKey:
		add(`"type": "string", "pattern": "^/", %s`, fixedText)
	case SecretEnvKey:
		add(`"type": "string", "pattern": %s`, secretName)
	case NameKey:
		add(`"type": "string", "maxLength": 1024`)
		add(`"pattern": "\\$\\{(id|params\\.[^{}$\n]*|result\\.[A-Za-z0-9_-]+)\\}"`)
		add(`"not": {"pattern": "^/|(^|/)\\.\\.?(/|$)|//|/$|\\\\"}`)
	case AddressKey:
		add(`"type": "string", "pattern": "^https?://[^/?#@\\s]+([/?][^#\\s]*)?$"`)
	case WordKey:
		add(`"enum": %s`, text(t, k.Words))
	case DurationKey:
		add(`"$ref": "#/$defs/duration"`)
	case MappingKey:
		value := `{"allOf": [{"$ref": "#/$defs/written"}, {"pattern": ` + text(t, string(headerText)) + `}]}`
		switch k.Values {
		case SecretFileKey:
			value = `{"type": "string", "pattern": "^/", ` + fixedText + `}`
		case SecretEnvKey:
			value = `{"type": "string", "pattern": ` + secretName + `}`
		case TextKey, PathKey, NameKey, AddressKey, WordKey, DurationKey, MappingKey:
		}
		add(`"type": "object", "maxProperties": 32, "propertyNames": {"pattern": %s, %s}, "additionalProperties": %s`,
			text(t, string(k.Names.Pattern)), k.Names.Schema, value)
	}
	if k.Schema != "" {
		add("%s", k.Schema)
	}
	if k.Default != "" {
		add(`"default": %q`, k.Default)
	}
	return strings.Join(members, ", ")
}

// text returns a text, or a list of texts, as JSON.
func text(t *testing.T, of any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(of); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), `","`, `", "`)
}
