package outbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7"
)

// transientCodes maps the error codes that need no change to the job, whatever their status, to
// advice, if any.
var transientCodes = map[string]string{
	"RequestTimeTooSkewed":           "set the clock of this machine or of the server; until they agree nothing is delivered",
	"ExpiredToken":                   "its session is over; put a new session token, with its keys, where the job says",
	"RequestTimeout":                 "",
	"IncompleteBody":                 "",
	"BadDigest":                      "what arrived is not what was sent",
	"XAmzContentSHA256Mismatch":      "what arrived is not what was sent",
	"XAmzContentChecksumMismatch":    "what arrived is not what was sent",
	"SlowDown":                       "",
	"InternalError":                  "",
	"ServiceUnavailable":             "",
	"OperationAborted":               "",
	"ConditionalRequestConflict":     "",
	"XMinioStorageFull":              "make room on the server",
	"XMinioServerNotInitialized":     "",
	"XMinioBackendDown":              "",
	"InsufficientStorage":            "make room on the server",
	"QuotaExceeded":                  "make room on the server",
	"XMinioAdminBucketQuotaExceeded": "make room in the bucket",
}

// operatorAdvice maps the codes of refusals to what a person can do.
var operatorAdvice = map[string]string{
	"AccessDenied":                 "let these credentials write there, or give the job others",
	"InvalidAccessKeyId":           "put an access key that the server knows where the job says",
	"XAdminUserNotFound":           "put an access key that the server knows where the job says",
	"InvalidToken":                 "put the session token that belongs to the keys where the job says, or none",
	"InvalidTokenId":               "put the session token that belongs to the keys where the job says, or none",
	"SignatureDoesNotMatch":        "put the secret key that belongs to the access key where the job says, and look at the region",
	"NoSuchBucket":                 "make the bucket, or write the right one into the job",
	"EntityTooLarge":               "it is larger than the server takes",
	"InvalidStorageClass":          "write a storage_class that the server has into the job",
	"AuthorizationHeaderMalformed": "write the region of the bucket into the job",
	"PermanentRedirect":            "write the endpoint of its region into the job",
}

// where says which request an error is about.
func (c *connection) where(object string) string {
	return fmt.Sprintf("put %q into bucket %s at %s", object, c.Bucket, c.Endpoint)
}

// explain turns an error of a request into an error with the remedy. Its text contains no secret.
func (c *connection) explain(object string, err error) error {
	where := c.where(object)
	if c.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", where, context.Cause(c.ctx))
	}
	answer := minio.ToErrorResponse(err)
	if answer.Code == "" && answer.StatusCode == 0 {
		return connectError(where, err)
	}
	text := where + " was answered with " + c.serverMessage(answer)
	advice, mends := transientCodes[answer.Code]
	if !mends && operatorAdvice[answer.Code] != "" {
		advice = operatorAdvice[answer.Code]
	}
	if status := answer.StatusCode; status >= 300 && status < 400 {
		advice = "redirects are not followed; write the endpoint and the region of the bucket into the job"
		if answer.Region != "" {
			advice += ", which the server says is " + printable(answer.Region, 64)
		}
	}
	if advice != "" {
		text += "; " + advice
	}
	if mends || isTransientStatus(answer.StatusCode) {
		return &RetryAfterError{time.Duration(c.transport.retryAfter.Load()), errors.New(text)}
	}
	return &RefusedError{text}
}

// isTransientStatus reports whether a later try may succeed after this status.
func isTransientStatus(status int) bool {
	switch status {
	case 0, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

// serverMessage returns the server's message without the credentials of the request.
func (c *connection) serverMessage(answer minio.ErrorResponse) string {
	text := answer.Code
	if answer.StatusCode > 0 {
		text = statusText(answer.StatusCode)
		if answer.Code != "" && !strings.HasPrefix(answer.Code, text[:3]) {
			text += " " + answer.Code
		}
	}
	if message := answer.Message; message != "" && !strings.HasPrefix(message, text[:min(3, len(text))]) {
		text += ": " + message
	}
	for _, secret := range c.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return strings.TrimSuffix(printable(text, 400), ".")
}

func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "..."
	}
	return text
}

// connectError describes why a request got no answer.
func connectError(where string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	advice := ""
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted:
		advice = "; have the authority of its certificate among those of the system (or in the file that SSL_CERT_FILE names), or write https://HOST as the certificate has it"
	case errors.Is(err, syscall.ECONNREFUSED):
		advice = "; nothing listens there"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		advice = "; write http:// into the job"
	}
	return fmt.Errorf("%s: %w%s", where, err, advice)
}
