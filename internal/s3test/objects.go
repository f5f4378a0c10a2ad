package s3test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Object is what a server has under a name.
type Object struct {
	Body              []byte
	Size              int64
	Type, ETag, Class string
	Metadata          map[string]string // names in lower case
}

// ErrNoObject says that there is none under a name.
var ErrNoObject = errors.New("there is no such object")

func (s *Server) client() (*minio.Core, error) {
	return minio.NewCore(s.Addr(), &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Secure: s.CertFile != "", Region: "us-east-1",
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // the server is our own
	})
}

// MakeBucket makes a bucket.
func (s *Server) MakeBucket(ctx context.Context, name string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	return c.MakeBucket(ctx, name, minio.MakeBucketOptions{})
}

// RemoveBucket removes a bucket with all that is in it.
func (s *Server) RemoveBucket(ctx context.Context, name string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	keys, err := s.Keys(ctx, name)
	for _, key := range keys {
		err = errors.Join(err, c.RemoveObject(ctx, name, key, minio.RemoveObjectOptions{}))
	}
	return errors.Join(err, c.RemoveBucket(ctx, name))
}

// Keys are the names in a bucket.
func (s *Server) Keys(ctx context.Context, bucket string) ([]string, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	var keys []string
	for o := range c.Client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			return keys, o.Err
		}
		keys = append(keys, o.Key)
	}
	return keys, nil
}

// Stat says what there is under a name, without its body. The error wraps ErrNoObject when there is nothing.
func (s *Server) Stat(ctx context.Context, bucket, key string) (*Object, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	info, err := c.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, ErrNoObject
	}
	if err != nil {
		return nil, err
	}
	o := &Object{
		Size: info.Size, Type: info.ContentType, ETag: info.ETag, Class: info.StorageClass,
		Metadata: make(map[string]string),
	}
	for name, value := range info.UserMetadata {
		o.Metadata[strings.ToLower(name)] = value
	}
	return o, nil
}

// Get is Stat with the body.
func (s *Server) Get(ctx context.Context, bucket, key string) (*Object, error) {
	o, err := s.Stat(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	body, err := s.Open(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	o.Body, err = io.ReadAll(body)
	return o, errors.Join(err, body.Close())
}

// Open reads what is under a name.
func (s *Server) Open(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	return c.Client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
}

// Uploads counts the unfinished multipart uploads.
func (s *Server) Uploads(ctx context.Context, bucket string) (int, error) {
	c, err := s.client()
	if err != nil {
		return 0, err
	}
	list, err := c.ListMultipartUploads(ctx, bucket, "", "", "", "", 1000)
	return len(list.Uploads), err
}
