package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// web is a client whose connections are kept.
var web = &http.Client{Transport: &http.Transport{
	MaxIdleConnsPerHost: 128, ReadBufferSize: 64 << 10,
	DisableCompression: true,
}}

// call sends a request and returns the body of its answer.
func call(ctx context.Context, method, target, body string) ([]byte, error) {
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, in)
	if err != nil {
		return nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := web.Do(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(answer.Body)
	err = errors.Join(err, answer.Body.Close())
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, target, answer.Status, bytes.TrimSpace(data))
	}
	return data, err
}

// submit makes an operation of a job of the group bench.
func (s *server) submit(ctx context.Context, job string) (id string, err error) {
	data, err := call(ctx, http.MethodPost, s.base+"/bench/"+job, "{}")
	if err != nil {
		return "", err
	}
	var op struct{ ID string }
	if err := json.Unmarshal(data, &op); err != nil || op.ID == "" {
		return "", fmt.Errorf("submit %s: the answer has no ID: %w", job, err)
	}
	return op.ID, nil
}

// control asks for something by the endpoint.
func (s *server) control(ctx context.Context, method, id, action string) error {
	_, err := call(ctx, method, s.base+"/bench/control?"+url.Values{"id": {id}, "action": {action}}.Encode(), "")
	return err
}

// reader is an open stream.
type reader struct {
	body io.ReadCloser
	id   string
}

// open opens a URL and reads until its log begins.
func open(ctx context.Context, target string) (*reader, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	answer, err := web.Do(r)
	if err != nil {
		return nil, err
	}
	out := &reader{answer.Body, answer.Header.Get("X-Jobdir-Operation")}
	if answer.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(answer.Body)
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", target, answer.Status, data), answer.Body.Close())
	}
	return out, nil
}

// until reads up to and with text, byte by byte, so that nothing behind it is lost.
func (r *reader) until(text string) error {
	var have []byte
	for one := make([]byte, 1); !bytes.HasSuffix(have, []byte(text)); {
		n, err := r.body.Read(one)
		have = append(have, one[:n]...)
		if err != nil && n == 0 {
			return fmt.Errorf("read until %q, after %q: %w", text, have, err)
		}
	}
	return nil
}

// openLog opens a URL and reads until its log begins.
func openLog(ctx context.Context, target string) (*reader, error) {
	r, err := open(ctx, target)
	if err != nil {
		return nil, err
	}
	if err := r.until("<log>\n"); err != nil {
		return nil, errors.Join(err, r.body.Close())
	}
	return r, nil
}

// streamOf is the URL of the stream of an operation.
func (s *server) streamOf(id string) string { return s.base + "/api/v1/operations/" + id + "/stream" }

// running makes an operation and returns when its work has begun to write.
func (s *server) running(ctx context.Context, job string) (id string, err error) {
	if id, err = s.submit(ctx, job); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := openLog(ctx, s.streamOf(id))
	if err != nil {
		return "", err
	}
	return id, errors.Join(r.until("\n"), r.body.Close())
}
