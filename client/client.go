package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// Client is a client of one daemon. Make one with [New]; it is safe for concurrent use.
type Client struct{ *conn }

// conn sends requests to one daemon and reads the answers.
type conn struct {
	address string
	base    string
	token   string
	http    *http.Client

	reconnectTimeout time.Duration
	lost             func(error)
	back             func()
	reached          atomic.Bool // a daemon has answered
}

// Option configures a Client in [New].
type Option func(*Client)

// WithToken sends a token with every request; daemons that listen beyond the loopback require one. Over plain http the
// token is readable on the network.
func WithToken(token string) Option {
	return func(c *Client) { c.token = token }
}

// New returns a client for the daemon at address: http://HOST:PORT, https://HOST:PORT or unix:/PATH/OF/SOCKET. It does
// not connect, so it fails only for a malformed address.
func New(address string, options ...Option) (*Client, error) {
	base, transport, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	c := &Client{&conn{address: address, base: base, reconnectTimeout: DefaultReconnectTimeout, http: &http.Client{
		Transport: transport,
		// A redirect would send the token elsewhere; the daemon never answers API calls with one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// Address returns the address that was passed to New.
func (c *Client) Address() string { return c.address }

// Close closes idle connections. The client remains usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxAnswer bounds, in bytes, the answers that are read into memory; streams and logs are not.
const maxAnswer = 64 << 20

// fetch is call for an answer of one type; what begins the error.
func fetch[Answer any](ctx context.Context, c *conn, what, method, path string, query url.Values,
	body any,
) (*Answer, error) {
	answer := new(Answer)
	if err := c.call(ctx, method, path, query, body, answer); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return answer, nil
}

// waitQuery returns the parameter wait of a request that may wait.
func waitQuery(wait time.Duration) url.Values {
	if wait > 0 {
		return url.Values{"wait": {wait.String()}}
	}
	return url.Values{}
}

// change is call without a use for the answer; what begins the error.
func (c *conn) change(ctx context.Context, what, method, path string, query url.Values, body any) error {
	if err := c.call(ctx, method, path, query, body, nil); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// call sends body as JSON unless it is nil, and decodes the response into answer unless that is nil.
func (c *conn) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	data, _, err := c.receive(ctx, method, path, query, body)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%s %s: the answer is not what a jobdir daemon sends: %w", method, path, err)
	}
	return nil
}

// receive returns the answer to a request that the daemon accepted, and its status.
func (c *conn) receive(ctx context.Context, method, path string, query url.Values,
	body any,
) (data []byte, status int, err error) {
	resp, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, 0, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return data, resp.StatusCode, nil
}

// send returns the response of a request that the daemon accepted; the caller closes its body.
func (c *conn) send(ctx context.Context, method, path string, query url.Values, body any,
	header ...[2]string,
) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: encode the request: %w", method, path, err)
		}
		content = bytes.NewReader(data)
	}
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for _, h := range header {
		req.Header.Set(h[0], h[1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, explainUnreachable(c.address, err)
	}
	c.reached.Store(true)
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// dialTimeout bounds connecting; only the context bounds the time until an answer.
const dialTimeout = 10 * time.Second
