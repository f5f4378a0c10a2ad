package control

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/daemon/submit"
)

// openapi is GET /openapi.json.
func (s *Server) openapi(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	s.send(w, r, mediaJSON, http.StatusOK, json.RawMessage(s.document))
	return nil
}

// object is a JSON object.
type object = map[string]any

// describeRoutes renders the table as an OpenAPI 3.1 document.
func describeRoutes(table []route, version string) ([]byte, error) {
	paths := object{}
	for i := range table {
		path, names := templated(table[i].path)
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(table[i].method)] = describeRoute(&table[i], names)
	}
	if version == "" {
		version = "unknown"
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "jobdir", "version": version,
			"description": "Long-running operations whose state is a directory. HEAD answers as GET would without starting anything.",
		},
		"paths": paths,
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

// templated replaces :name and *name of the router by {name}.
func templated(path string) (out string, names []string) {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if segment != "" && strings.ContainsAny(segment[:1], ":*") {
			names = append(names, segment[1:])
			segments[i] = "{" + segment[1:] + "}"
		}
	}
	return strings.Join(segments, "/"), names
}

func describeRoute(row *route, names []string) object {
	parameters := []object{}
	for _, name := range names {
		parameters = append(parameters, object{
			"name": name, "in": "path", "required": true,
			"schema": object{"type": "string"},
		})
	}
	for _, p := range row.query {
		schema := object{"type": p.kind}
		if p.values != nil {
			schema["enum"] = p.values
		}
		parameters = append(parameters, object{
			"name": p.name, "in": "query", "required": p.needed,
			"description": p.summary, "schema": schema,
		})
	}
	out := object{"summary": row.summary, "parameters": parameters, "responses": describeAnswers(row.answers)}
	if row.body != "" {
		schema := object{"type": "object"}
		if row.lists {
			schema = object{"oneOf": []object{schema, {
				"type": "array", "items": schema, "minItems": 1,
				"maxItems": submit.MaxEntries,
			}}}
		}
		out["requestBody"] = object{"description": row.body, "content": object{mediaJSON: object{"schema": schema}}}
	}
	if row.public {
		out["security"] = []object{}
	} else {
		out["security"] = []object{{}, {"token": []string{}}}
	}
	if row.streams {
		out["x-streaming"] = true
	}
	return out
}

func describeAnswers(answers []routeResponse) object {
	out := object{"default": object{
		"description": "A problem",
		"content":     object{problemType: object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
	}}
	media := map[int]object{}
	for _, a := range answers {
		if media[a.status] == nil {
			media[a.status] = object{}
			out[strconv.Itoa(a.status)] = object{"description": a.summary, "content": media[a.status]}
		}
		media[a.status][a.media] = object{}
	}
	return out
}
