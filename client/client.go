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

// Client talks to one daemon. Make one with [New]; it is safe for concurrent use.
type Client struct {
	address string
	base    string
	token   string
	http    *http.Client

	patience time.Duration
	lost     func(error)
	back     func()
	reached  atomic.Bool // a daemon has answered
}

// Option changes a Client while [New] makes it.
type Option func(*Client)

// WithToken makes the client show a token with every request, as daemons that listen beyond the loopback want it. It is
// sent as it is: over http it can be read by whoever sees the packets.
func WithToken(token string) Option {
	return func(c *Client) { c.token = token }
}

// New returns a client for the daemon at address: http://HOST:PORT, https://HOST:PORT or unix:/PATH/OF/SOCKET. It does
// not connect, so it fails for a malformed address only.
func New(address string, options ...Option) (*Client, error) {
	base, transport, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	c := &Client{address: address, base: base, patience: DefaultPatience, http: &http.Client{
		Transport: transport,
		// A redirect would carry the token to another place; the daemon never answers one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// Address returns the address as it was given to New.
func (c *Client) Address() string { return c.address }

// Close closes idle connections. The client can be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxAnswer bounds the answers that are read into memory, in bytes; streams and logs are not among them.
const maxAnswer = 64 << 20

// call sends body as JSON, when it is not nil, and decodes the answer into answer, when that is not nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	resp, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%s %s: the answer is not what a jobdir daemon sends: %w", method, path, err)
	}
	return nil
}

// send returns the response of a request that the daemon accepted; its body is the caller's to close.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
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
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, reach(c.address, err)
	}
	c.reached.Store(true)
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// dialTimeout bounds the making of a connection; answers may take as long as they need, the context ends them.
const dialTimeout = 10 * time.Second
