package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	modeFollow = "follow" // goes on until it is stopped
	modeOnce   = "once"   // stops when nothing is left
)

// The servers that are meant when the settings name none: those of this machine at their usual ports.
const (
	defaultMongoURI = "mongodb://127.0.0.1:27017"
	defaultEndpoint = "127.0.0.1:9000"
)

// settings are the settings of the program. Flags override the environment.
type settings struct {
	mode                 string
	mongoURI, runnerURI  string // the outbox, the source
	endpoint             string // HOST:PORT of the S3 server
	accessKey, secretKey string
	secure               bool          // TLS to the S3 server
	every                time.Duration // how long to wait when nothing was to be done
	retry                time.Duration // from one try of a lost connection to the next
	claim                time.Duration // how long a worker may be at one entry before another one takes it
	name                 string        // of the worker in its claims
}

// readSettings parses the arguments and the environment. Secrets come from the environment or from files that
// it names (MINIO_SECRET_KEY_FILE), never from arguments: arguments are parameters of the job, which its
// record contains.
func readSettings(args []string, getenv func(string) string) (settings, error) {
	var s settings
	var secure string
	flags := flag.NewFlagSet("outbox-s3", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.mode, "mode", "", "")
	flags.StringVar(&s.mongoURI, "mongo-uri", "", "")
	flags.StringVar(&s.runnerURI, "runner-mongo-uri", "", "")
	flags.StringVar(&s.endpoint, "minio-endpoint", "", "")
	flags.StringVar(&s.accessKey, "minio-access-key", "", "")
	flags.StringVar(&secure, "minio-secure", "", "")
	flags.DurationVar(&s.every, "every", time.Second, "")
	flags.DurationVar(&s.retry, "retry", 5*time.Second, "")
	flags.DurationVar(&s.claim, "claim", 3*time.Minute, "")
	if err := flags.Parse(args); err != nil {
		return s,
			fmt.Errorf("%w; the flags are --mode, --mongo-uri, --runner-mongo-uri, --minio-endpoint, --minio-access-key, --minio-secure, --every, --retry and --claim", err)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for name, uri := range map[string]string{"--mongo-uri": s.mongoURI, "--runner-mongo-uri": s.runnerURI} {
		if password(uri) != "" {
			return s,
				fmt.Errorf("%s has a password, and arguments are not secret: give the URI as MONGO_URI or RUNNER_MONGO_URI in the environment, or in a file that MONGO_URI_FILE or RUNNER_MONGO_URI_FILE names", name)
		}
	}
	var err error
	fill := func(value *string, name string) {
		if *value == "" {
			found, wrong := fromEnvironment(name, getenv)
			*value, err = found, errors.Join(err, wrong)
		}
	}
	fill(&s.mongoURI, "MONGO_URI")
	fill(&s.runnerURI, "RUNNER_MONGO_URI")
	fill(&s.endpoint, "MINIO_ENDPOINT")
	fill(&s.accessKey, "MINIO_ACCESS_KEY")
	fill(&s.secretKey, "MINIO_SECRET_KEY")
	fill(&secure, "MINIO_SECURE")
	if err != nil {
		return s, err
	}
	s.mode, s.mongoURI, s.endpoint = cmp.Or(s.mode, modeFollow), cmp.Or(s.mongoURI, defaultMongoURI),
		cmp.Or(s.endpoint, defaultEndpoint)
	s.runnerURI, s.name = cmp.Or(s.runnerURI, s.mongoURI), cmp.Or(getenv("JOBDIR_ID"), ownName())
	if s.secure, err = strconv.ParseBool(cmp.Or(secure, "false")); err != nil {
		return s, fmt.Errorf("MINIO_SECURE is %q, and should be true or false", secure)
	}
	return s, s.check()
}

// ownName names a worker that is not run by jobdir, whose operation keeps its ID when it begins again.
func ownName() string {
	host, _ := os.Hostname() // the number alone will do
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

func (s settings) check() error {
	for _, needed := range []struct{ name, value string }{
		{"MINIO_ACCESS_KEY", s.accessKey}, {"MINIO_SECRET_KEY", s.secretKey},
	} {
		if needed.value == "" {
			return fmt.Errorf("%s is not set; it is taken from the environment, or from a file that %[1]s_FILE names",
				needed.name)
		}
	}
	switch {
	case s.mode != modeFollow && s.mode != modeOnce:
		return fmt.Errorf("the mode is %q, and should be %s or %s", s.mode, modeFollow, modeOnce)
	case strings.Contains(s.endpoint, "/"):
		return fmt.Errorf("MINIO_ENDPOINT is %q, and should be HOST:PORT; MINIO_SECURE has whether it speaks TLS",
			s.endpoint)
	case s.every <= 0 || s.retry <= 0 || s.claim <= 0:
		return errors.New("--every, --retry and --claim should be longer than 0")
	}
	return nil
}

// secrets are the texts that no line of the log may have.
func (s settings) secrets() []string {
	return []string{s.secretKey, password(s.mongoURI), password(s.runnerURI)}
}

// password returns that of a connection string as it is written there, or "".
func password(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	user, _, ok := cutLast(strings.SplitN(rest, "/", 2)[0], "@")
	if !ok {
		return ""
	}
	_, secret, _ := strings.Cut(user, ":")
	return secret
}

// host returns the part of a connection string that may be shown.
func host(uri string) string {
	if u, err := url.Parse(uri); err == nil {
		return u.Host
	}
	_, rest, _ := strings.Cut(uri, "://")
	rest = strings.SplitN(rest, "/", 2)[0]
	if _, hosts, ok := cutLast(rest, "@"); ok {
		return hosts
	}
	return rest
}

func cutLast(text, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// fromEnvironment returns the variable, or what is in the file that NAME_FILE names, without the line end.
func fromEnvironment(name string, getenv func(string) string) (string, error) {
	path := getenv(name + "_FILE")
	if value := getenv(name); value != "" || path == "" {
		return value, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
