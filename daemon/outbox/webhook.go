package outbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

var webhookKind = &Kind{
	Name: "webhook",
	Help: "A request of HTTP, with the headers of the Standard Webhooks specification, signed when there is a secret.",
	Keys: []Key{
		{
			Name: "url", Type: AddressKey, Required: "write {url: https://...}",
			Help: "An http or https URL with `${id}` and `${params.X}` in its path and query, where they are escaped",
		},
		{
			Name: "method", Type: WordKey, Default: http.MethodPost,
			Words: []string{http.MethodPost, http.MethodPut, http.MethodPatch}, Help: "The method of the request",
		},
		{
			Name: "headers", Type: MappingKey, Names: headerNames, Values: TextKey, Pattern: headerText,
			Fixed: "references belong into the path or the query of url",
			Help:  "Further headers. Everybody who may read the job can read its `url` and `headers`",
		},
		{
			Name: "headers_file", Type: MappingKey, Names: headerNames, Values: SecretFileKey, Hint: "/etc/jobdir/hook.token",
			Help: "Headers that are secrets: `{Authorization: /etc/jobdir/hook.token}`, a file of one line from the root, read at each try",
		},
		{
			Name: "headers_env", Type: MappingKey, Names: headerNames, Values: SecretEnvKey,
			Help: "Headers that are secrets, from environment variables of the daemon that begin with `JOBDIR_SECRET_`, which commands never get",
		},
		{
			Name: "secret_file", Type: SecretFileKey, Hint: "/etc/jobdir/hook.key", Either: oneHookSecret,
			Help: "A file with the secret that signs, from the root: `whsec_` and base64 of 24 to 64 bytes; several, a line each, while one replaces another",
		},
		{
			Name: "secret_env", Type: SecretEnvKey, Either: oneHookSecret,
			Help: "The environment variable of the daemon with the secret; its name begins with `JOBDIR_SECRET_`",
		},
		{
			Name: "timeout", Type: DurationKey, Default: "30s", Max: time.Hour,
			Help: "How long an answer may take, at most 1h",
		},
	},
	Target: newWebhook,
}

const oneHookSecret = "leave one of them out; a file may hold several secrets, one a line"

// headerText is what the value of a header must match.
const headerText Expression = `^[\t -~]{0,1000}$`

var headerNames = &Names{
	In: "headers", Pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$", Hint: "letters, digits and -",
	Canonical: http.CanonicalHeaderKey,
	Taken: []string{
		"Content-Length", "Content-Type", "Host", "Transfer-Encoding", "Connection", "Webhook-Id", "Webhook-Timestamp",
		"Webhook-Signature",
	},
	Schema: `"not": {"pattern": "^([Cc]ontent-([Ll]ength|[Tt]ype)|[Hh]ost|[Tt]ransfer-[Ee]ncoding|[Cc]onnection|[Ww]ebhook-([Ii]d|[Tt]imestamp|[Ss]ignature))$"}`,
}

// NewSender makes a client for webhooks that connects to public addresses and to those in allow. It
// follows no redirect. It uses no proxy, because a proxy would connect to any address.
func NewSender(allow []netip.Prefix) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: control(allow)}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: DefaultPerTarget,
			IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Webhook is a URL that accepts requests.
type Webhook struct {
	Sender *http.Client
	// Allow has the addresses that the Sender connects to in addition to the public ones.
	Allow []netip.Prefix
	// URL is as the job has it, with references.
	URL    string
	Method string
	// Headers have values, SecretHeaders the sources of theirs.
	Headers       []Pair
	SecretHeaders map[string]Source
	Secret        Source // the zero Source: no signature
	Timeout       time.Duration
}

func newWebhook(s Settings, shared *Shared) Target {
	w := &Webhook{
		Sender: shared.sender, Allow: shared.allow, URL: s.Text("url"), Method: s.Text("method"), Headers: s.Pairs("headers"),
		SecretHeaders: make(map[string]Source), Secret: s.Source("secret"), Timeout: s.Duration("timeout"),
	}
	for _, h := range s.Pairs("headers_file") {
		w.SecretHeaders[h.Name] = Source{File: h.Value}
	}
	for _, h := range s.Pairs("headers_env") {
		w.SecretHeaders[h.Name] = Source{Env: h.Value}
	}
	return w
}

// Place implements Target. The path and query of the URL may be secrets.
func (w *Webhook) Place() Place {
	scheme, rest, _ := strings.Cut(w.URL, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	return Place{Label: scheme + "://" + host, Key: w.URL}
}

// Check implements Target.
func (w *Webhook) Check() error {
	u, err := url.Parse(w.URL)
	if err != nil {
		return err
	}
	return CheckHost(u.Hostname(), w.Allow)
}

// Abort implements Target.
func (*Webhook) Abort(context.Context, *statefs.Upload) error { return nil }

// answerLimit bounds how much of a response is read, so that its connection can be reused; the
// content is discarded.
const answerLimit = 64 << 10

// Deliver makes one request. A status of 2xx means success.
func (w *Webhook) Deliver(ctx context.Context, p Parcel) (Receipt, error) {
	secrets, err := w.Secret.readKeys()
	if err != nil {
		return Receipt{}, err
	}
	header := make(http.Header)
	for _, h := range w.Headers {
		header.Set(h.Name, h.Value)
	}
	for name, from := range w.SecretHeaders {
		text, err := from.read()
		if err == nil && !headerText.MatchString(text) {
			err = errors.New("it has characters that no header has")
		}
		if err != nil {
			return Receipt{}, fmt.Errorf("read the header %s: %w", name, err)
		}
		header.Set(name, text)
	}
	content, err := p.Open()
	if err != nil {
		return Receipt{}, &LocalError{err}
	}
	body, err := io.ReadAll(whole(content))
	_ = content.Close() // it was read
	if err != nil {
		return Receipt{}, &LocalError{err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, fmt.Errorf("no answer within %s", w.Timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, w.Method, p.Name, bytes.NewReader(body))
	if err != nil {
		return Receipt{}, &RefusedError{"the address is not a URL"}
	}
	request.Header = header
	now := time.Now()
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "jobdir")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Webhook-Id", p.ID)
	request.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	if len(secrets) > 0 {
		request.Header.Set("Webhook-Signature", sign(secrets, p.ID, now, body))
	}
	where := request.Method + " " + request.URL.Host
	response, err := w.Sender.Do(request)
	if err != nil {
		return Receipt{}, requestError(ctx, where, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, answerLimit)) // only the status counts
	_ = response.Body.Close()
	if err := statusError(where, response, now); err != nil {
		return Receipt{}, err
	}
	sum := sha256.Sum256(body)
	location := request.URL.Scheme + "://" + request.URL.Host // without path and query, which may be secret
	return Receipt{Location: location, Bytes: int64(len(body)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// requestError describes why a request got no answer. It omits the full URL, because its path or
// query may be secret.
func requestError(ctx context.Context, where string, err error) error {
	if private, ok := errors.AsType[*PrivateError](err); ok {
		return &RefusedError{where + ": " + private.Error()}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", where, context.Cause(ctx))
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", where, err)
}

// statusError maps a status to an error; nil for 2xx.
func statusError(where string, response *http.Response, now time.Time) error {
	status := response.StatusCode
	err := fmt.Errorf("%s was answered with %s", where, statusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return &RefusedError{err.Error() + ": redirects are not followed; write the address that it leads to into the job"}
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests, status >= 500:
		return &RetryAfterError{retryAfter(response.Header.Get("Retry-After"), now), err}
	}
	return &RefusedError{err.Error()}
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("%d (%s)", status, text)
	}
	return strconv.Itoa(status)
}

// retryAfter parses the header Retry-After; it returns 0 when there is none that can be parsed.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
