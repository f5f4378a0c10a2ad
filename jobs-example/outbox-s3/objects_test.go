package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// What an S3 server answers concerns one entry, which is then refused, or the whole server, which is then lost.
func TestWhatAnAnswerConcerns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		code    string
		refused bool
	}{
		{404, "NoSuchBucket", true},
		{403, "AccessDenied", true},
		{400, "KeyTooLongError", true},
		{413, "EntityTooLarge", true},
		{400, "XAmzContentSHA256Mismatch", true},
		{403, "InvalidAccessKeyId", false},
		{403, "SignatureDoesNotMatch", false},
		{403, "RequestTimeTooSkewed", false},
		{400, "RequestTimeout", false},
		{429, "TooManyRequests", false},
		{500, "InternalError", false},
		{503, "SlowDown", false},
		{502, "", false},
	} {
		calls := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				calls++
			}
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(c.status)
			if c.code != "" {
				_, _ = w.Write([]byte("<Error><Code>" + c.code + "</Code><Message>no</Message></Error>"))
			}
		}))
		client, err := minio.New(strings.TrimPrefix(server.URL, "http://"),
			&minio.Options{Creds: credentials.NewStaticV4("k", "s", ""), Region: "us-east-1", MaxRetries: 1})
		if err != nil {
			t.Fatal(err)
		}
		err = objects{minio.Core{Client: client}}.put(t.Context(), "videos", "detection/a.json", []byte("{}\n"))
		server.Close()
		var wrong *refusal
		if refused := errors.As(err, &wrong); err == nil || refused != c.refused || calls != 1 {
			t.Errorf("%d %s: refused %v after %d calls: %v", c.status, c.code, refused, calls, err)
		}
	}
}
