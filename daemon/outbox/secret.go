package outbox

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// SecretPrefix begins the names of environment variables that may hold secrets: commands never get them.
const SecretPrefix = "JOBDIR_SECRET_"

// SecretName is what the name of such a variable must match.
var SecretName = regexp.MustCompile(`^` + SecretPrefix + `[A-Z0-9_]{1,100}$`)

// maxSecret bounds the size of a file that holds a secret.
const maxSecret = 16 << 10

// Source is where a secret is read each time it is needed, because it may be replaced while the daemon runs: a file, or
// an environment variable of the daemon. Errors never contain the secret.
type Source struct{ File, Env string }

// text reads the source and names it.
func (s Source) text() (text, where string, err error) {
	if s.File == "" {
		return os.Getenv(s.Env), "the environment variable " + s.Env, nil
	}
	f, err := os.Open(s.File)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = f.Close() }() // opened for reading
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	return string(data), "the file " + s.File, err
}

// read reads a secret of one line.
func (s Source) read() (string, error) {
	all, where, err := s.text()
	text := strings.TrimSpace(all)
	switch {
	case err != nil:
		return "", err
	case text == "" && s.File == "":
		return "", fmt.Errorf("the environment of the daemon has no %s; start it with that, or write a file into the job", s.Env)
	case text == "":
		return "", fmt.Errorf("%s is empty", where)
	case len(all) > maxSecret || strings.ContainsAny(text, "\r\n\x00"):
		return "", fmt.Errorf("%s has more than one line", where)
	}
	return text, nil
}

// readKeys reads the signing secrets of a webhook, a line each; none if there is no source.
func (s Source) readKeys() ([]Secret, error) {
	if s == (Source{}) {
		return nil, nil
	}
	text, where, err := s.text()
	if err != nil {
		return nil, fmt.Errorf("read the secret: %w", err)
	}
	secrets, err := ParseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("%s holds no secret: %w", where, err)
	}
	return secrets, nil
}
