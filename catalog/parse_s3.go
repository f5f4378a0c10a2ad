package catalog

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var s3Keys = keySet{owner: "s3", known: []string{
	"endpoint", "bucket", "key", "region", "content_type", "storage_class", "metadata", "access_key_env",
	"access_key_file", "secret_key_env",
	"secret_key_file", "session_token_env", "session_token_file", "timeout", "send", "on", "retry_for",
}}

// Bounds of a target of S3.
const (
	maxS3Timeout  = time.Hour
	minS3Timeout  = time.Second
	maxMetadata   = 32
	maxMetaBytes  = 1000
	deliveryTaken = "jobdir-delivery" // set by the daemon in the metadata
)

// s3 decodes a target that is a bucket.
func (j *jobDecoder) s3(d *Delivery, n *node) {
	t := d.S3
	var key *node
	if !j.mapping(n, s3Keys, func(name string, k, n *node) {
		switch name {
		case "endpoint":
			j.endpoint(t, n)
		case "bucket":
			if s, ok := j.text(n, name); ok {
				t.Bucket = s
				if refers(s) {
					j.unreferenced(n, "bucket", "no parameter may choose the bucket; put it into key")
				} else if err := checkBucket(s); err != nil {
					j.fail(n, "3 to 63 of a-z, 0-9, . and -, a letter or digit first and last", "%s", err)
				}
			}
		case "key":
			if s, ok := j.text(n, name); ok {
				t.Key, key = s, n
			}
		case "region":
			j.matched(&t.Region, name, n, regionName.MatchString, "such as us-east-1")
		case "content_type":
			j.matched(&t.ContentType, name, n, mediaType.MatchString, "such as application/json")
		case "storage_class":
			j.matched(&t.StorageClass, name, n, storageClass.MatchString, "such as STANDARD_IA, as the server calls it")
		case "metadata":
			j.metadata(t, n)
		case "timeout":
			t.Timeout = j.duration(n, name, maxS3Timeout, "leave the key out for 1m")
			if t.Timeout > 0 && t.Timeout < minS3Timeout {
				j.fail(n, "it is how long nothing may move, at least 1s", "timeout cannot be %s", t.Timeout)
			}
		default:
			if !j.credential(t, name, k, n) {
				j.shipping(d, name, n, string(SendResult), string(SendRecord), string(SendLog), string(SendArtifacts))
			}
		}
	}) {
		return
	}
	switch {
	case t.Endpoint == "":
		j.fail(n, `write {endpoint: "https://HOST", bucket: ..., key: ...}`, "s3 has no endpoint")
	case t.Bucket == "":
		j.fail(n, `write {endpoint: ..., bucket: NAME, key: ...}`, "s3 has no bucket")
	}
	t.defaults()
	if t.Key == "" {
		t.Key = d.defaultKey()
	}
	j.deliveredKey(d, key)
}

// defaults fills in where the credentials are.
func (t *S3Target) defaults() {
	if t.AccessKey == (SecretSource{}) {
		t.AccessKey.Env = DefaultAccessKey
	}
	if t.SecretKey == (SecretSource{}) {
		t.SecretKey.Env = DefaultSecretKey
	}
}

func refers(s string) bool {
	for p := range pieces(s) {
		if p.ref != "" {
			return true
		}
	}
	return false
}

func (j *jobDecoder) endpoint(t *S3Target, n *node) {
	s, ok := j.text(n, "endpoint")
	if !ok {
		return
	}
	t.Endpoint = strings.TrimSuffix(s, "/")
	if refers(s) {
		j.unreferenced(n, "endpoint", "no parameter may choose the server; put it into key")
		return
	}
	if err := checkEndpoint(s); err != nil {
		j.fail(n, "write https://HOST or http://HOST:PORT", "endpoint cannot be used: %s", err) // it may have a password
	}
}

// matched decodes a text of a form, without references.
func (j *jobDecoder) matched(into *string, what string, n *node, fits func(string) bool, hint string) {
	s, ok := j.text(n, what)
	if !ok {
		return
	}
	*into = s
	if !fits(s) {
		j.fail(n, hint, "%s cannot be %q", what, clip(s))
	}
}

// credential decodes a key that names the location of a secret; it returns false for any other key.
func (j *jobDecoder) credential(t *S3Target, name string, k, n *node) bool {
	what, isFile := strings.CutSuffix(name, "_file")
	what, isEnv := strings.CutSuffix(what, "_env")
	if !isFile && !isEnv {
		return false
	}
	into := map[string]*SecretSource{
		"access_key": &t.AccessKey, "secret_key": &t.SecretKey,
		"session_token": &t.SessionToken,
	}[what]
	if *into != (SecretSource{}) {
		j.fail(k, "leave one of them out", "%s_file and %s_env exclude each other", what, what)
	}
	s, ok := j.text(n, name)
	switch {
	case !ok:
	case isFile && refers(s):
		j.unreferenced(n, name, "a secret comes from no parameter")
	case isFile && !filepath.IsAbs(s):
		j.fail(n, "write it from the root, such as /etc/jobdir/s3.key", "%s cannot be %q", name, clip(s))
	case isEnv && !secretEnv.MatchString(s):
		j.fail(n, "it is a name that begins with "+SecretPrefix+", which no command gets", "%s cannot be %q", name, clip(s))
	case isFile:
		into.File = s
	default:
		into.Env = s
	}
	return true
}

func (j *jobDecoder) metadata(t *S3Target, n *node) {
	if n.kind != mappingKind {
		j.fail(n, "write NAME: VALUE", "metadata must be a mapping, not %s", n.kind)
		return
	}
	if len(n.entries) > maxMetadata {
		j.fail(n, "", "metadata has more than %d names", maxMetadata)
	}
	size := 0
	for _, e := range n.entries {
		name := e.key.text
		switch {
		case !metadataName.MatchString(name):
			j.fail(e.key, "a-z, 0-9, _ and -, without x-amz-meta-", "metadata cannot have the name %q", clip(name))
		case name == deliveryTaken:
			j.fail(e.key, "the daemon sets it", "metadata cannot have the name %q", name)
		case slices.ContainsFunc(t.Metadata, func(v EnvVar) bool { return v.Name == name }):
			j.fail(e.key, "", "the name %q is given twice in metadata", clip(name))
		}
		s, ok := j.written(e.value, "the value of "+clip(name))
		if !ok {
			continue
		}
		if !headerText.MatchString(s) {
			j.fail(e.value, "visible characters of ASCII and spaces", "the value of %s cannot be sent", clip(name))
		}
		size += len(name) + len(s)
		j.uses = append(j.uses, use{at: e.value, text: s})
		t.Metadata = append(t.Metadata, EnvVar{Name: name, Value: s})
	}
	if size > maxMetaBytes {
		j.fail(n, "servers take 2 KB in all", "metadata has more than %d bytes", maxMetaBytes)
	}
}
