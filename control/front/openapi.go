package front

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// Describe renders a table as an OpenAPI 3.1 document.
func Describe(table []Route, title, description, version string) ([]byte, error) {
	paths := object{}
	for i := range table {
		path, names := Templated(table[i].Path)
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(table[i].Method)] = describeRoute(&table[i], names)
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info":    object{"title": title, "version": cmp.Or(version, "unknown"), "description": description},
		"paths":   paths,
		"components": object{
			"schemas":         object{"Problem": problemSchema()},
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	})
}

func problemSchema() object {
	text := object{"type": "string"}
	return object{
		"type": "object", "required": []string{"status", "error"},
		"description": "RFC 9457; error is the one-line message",
		"properties": object{
			"type": text, "title": text, "status": object{"type": "integer"},
			"detail": text, "error": text,
		},
	}
}

// Templated replaces :name and *name of the router by {name}.
func Templated(path string) (out string, names []string) {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if segment != "" && strings.ContainsAny(segment[:1], ":*") {
			names = append(names, segment[1:])
			segments[i] = "{" + segment[1:] + "}"
		}
	}
	return strings.Join(segments, "/"), names
}

func describeRoute(row *Route, names []string) object {
	parameters := []object{}
	for _, name := range names {
		parameters = append(parameters, object{
			"name": name, "in": "path", "required": true, "schema": object{"type": "string"},
		})
	}
	for _, p := range row.Query {
		schema := object{"type": p.Kind}
		if p.Values != nil {
			schema["enum"] = p.Values
		}
		parameters = append(parameters, object{
			"name": p.Name, "in": "query", "required": p.Needed,
			"description": p.Summary, "schema": schema,
		})
	}
	out := object{"summary": row.Summary, "parameters": parameters, "responses": describeAnswers(row.Answers)}
	if row.Body != "" {
		schema := object{"type": "object"}
		if row.List > 0 {
			schema = object{"oneOf": []object{schema, {
				"type": "array", "items": schema, "minItems": 1,
				"maxItems": row.List,
			}}}
		}
		out["requestBody"] = object{"description": row.Body, "content": object{MediaJSON: object{"schema": schema}}}
	}
	if row.Public {
		out["security"] = []object{}
	} else {
		out["security"] = []object{{}, {"token": []string{}}}
	}
	if row.Streams {
		out["x-streaming"] = true
	}
	return out
}

func describeAnswers(answers []Answer) object {
	out := object{"default": object{
		"description": "A problem",
		"content":     object{ProblemType: object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
	}}
	media := map[int]object{}
	for _, a := range answers {
		if media[a.Status] == nil {
			media[a.Status] = object{}
			out[strconv.Itoa(a.Status)] = object{"description": a.Summary, "content": media[a.Status]}
		}
		media[a.Status][a.Media] = object{}
	}
	return out
}
