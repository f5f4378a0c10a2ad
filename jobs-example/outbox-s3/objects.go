package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// objects is the S3 server.
type objects struct{ core minio.Core }

// refusal is an error that concerns one entry alone, and that no further try mends by itself.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// wholeServer are the codes of S3 that say 4xx and concern every object: the credentials, and the clocks.
var wholeServer = []string{
	"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidTokenId",
	"RequestTimeTooSkewed", "SlowDown", "RequestTimeout",
}

// put stores an object as a whole. The server compares the checksum before the name appears; storing it again changes
// nothing.
func (o objects) put(ctx context.Context, bucket, name string, body []byte) error {
	if err := s3utils.CheckValidBucketNameStrict(bucket); err != nil {
		return &refusal{fmt.Errorf("the bucket %q: %w", bucket, err)}
	}
	sum := sha256.Sum256(body)
	_, err := o.core.PutObject(ctx, bucket, name, bytes.NewReader(body), int64(len(body)), "", "", minio.PutObjectOptions{
		ContentType:  "application/json",
		UserMetadata: map[string]string{"x-amz-checksum-sha256": base64.StdEncoding.EncodeToString(sum[:])},
	})
	var answer minio.ErrorResponse
	if errors.As(err, &answer) && answer.StatusCode >= 400 && answer.StatusCode < 500 &&
		answer.StatusCode != http.StatusRequestTimeout && answer.StatusCode != http.StatusTooManyRequests &&
		!slices.Contains(wholeServer, answer.Code) {
		return &refusal{fmt.Errorf("bucket %q: %s: %w", bucket, answer.Code, err)}
	}
	return err
}
