package outbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Sender makes the requests of webhooks. It is safe for concurrent use.
type Sender struct{ client *http.Client }

// NewSender makes a Sender that connects to public addresses and to those in allow. It follows no
// redirect. It uses no proxy, because a proxy would connect to any address.
func NewSender(allow []netip.Prefix) *Sender {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: control(allow)}
	return &Sender{&http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: DefaultPerTarget,
			IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Webhook is a URL that accepts requests.
type Webhook struct {
	Sender  *Sender
	Method  string
	Headers http.Header
	Secrets []Secret // none: no signature
	Timeout time.Duration
}

// answerLimit bounds how much of a response is read, so that its connection can be reused; the
// content is discarded.
const answerLimit = 64 << 10

// Deliver makes one request. A status of 2xx means success.
func (w *Webhook) Deliver(ctx context.Context, p Parcel) (Receipt, error) {
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
	maps.Copy(request.Header, w.Headers)
	now := time.Now()
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "jobdir")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Webhook-Id", p.ID)
	request.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	if len(w.Secrets) > 0 {
		request.Header.Set("Webhook-Signature", sign(w.Secrets, p.ID, now, body))
	}
	where := request.Method + " " + request.URL.Host
	response, err := w.Sender.client.Do(request)
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
