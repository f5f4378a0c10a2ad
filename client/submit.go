package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Submit starts an operation of a job. params is encoded as a JSON object: a map or a struct whose values have the
// types that the job declares; nil means no parameters. When Submit returns, the operation is as durable as the storage
// promises. After an error other than *[Error] the operation may exist, unless [Unreachable] reports true.
func (c *Client) Submit(ctx context.Context, group, job string, params any) (*Operation, error) {
	if params == nil {
		params = struct{}{}
	}
	op, err := fetch[Operation](ctx, c.conn, "start "+group+"/"+job, http.MethodPost, jobPath(group, job), nil, params)
	if err == nil && op.ID.IsZero() {
		return nil, fmt.Errorf("start %s/%s: the answer holds no ID; is this a jobdir daemon?", group, job)
	}
	return op, err
}

// SubmitText is Submit with all parameters as text, as on a command line. It first asks the daemon for the declared
// types. Text that is invalid for its type is a *[TextError]; then nothing was submitted.
func (c *Client) SubmitText(ctx context.Context, group, job string, params map[string]string) (*Operation, error) {
	typed, err := c.TypedParams(ctx, group, job, params)
	if err != nil {
		return nil, fmt.Errorf("start %s/%s: %w", group, job, err)
	}
	return c.Submit(ctx, group, job, typed)
}

// TypedParams converts parameters from text to the types that the job declares, for which it asks the daemon. Text that
// is invalid for its type is a *[TextError].
func (c *Client) TypedParams(ctx context.Context, group, job string, params map[string]string) (map[string]any, error) {
	typed := map[string]any{}
	if len(params) == 0 {
		return typed, nil
	}
	declared, err := c.Job(ctx, group, job)
	if refused, ok := errors.AsType[*Error](err); ok {
		return nil, refused // alone: the caller did not make the request for the job that err names
	}
	if err != nil {
		return nil, err
	}
	types := map[string]string{}
	for _, p := range declared.Params {
		types[p.Name] = p.Type
	}
	for name, text := range params {
		if typed[name], err = TypedValue(name, types[name], text); err != nil {
			return nil, err
		}
	}
	return typed, nil
}

// TextError means that the text of a parameter is invalid for the type that the job declares.
type TextError struct {
	Param string
	Type  string
	Text  string
}

func (e *TextError) Error() string {
	article := "a"
	if strings.IndexAny(e.Type, "aeiou") == 0 {
		article = "an"
	}
	return fmt.Sprintf("parameter '%s': '%s' is not %s %s", e.Param, e.Text, article, e.Type)
}

// TypedValue parses text by the type of a parameter; invalid text is a *[TextError]. For an unknown type it returns the
// text: the daemon refuses undeclared names.
func TypedValue(name, kind, text string) (any, error) {
	switch kind {
	case "integer", "number":
		var number json.Number
		if text != "" && text[0] != '"' && json.Unmarshal([]byte(text), &number) == nil && number != "" {
			return number, nil
		}
	case "boolean":
		switch text {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
	case "object", "array":
		if json.Valid([]byte(text)) {
			return json.RawMessage(text), nil
		}
	default:
		return text, nil
	}
	return nil, &TextError{Param: name, Type: kind, Text: text}
}

func jobPath(group, job string) string {
	return "/" + url.PathEscape(group) + "/" + url.PathEscape(job)
}
