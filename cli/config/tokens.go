package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/control/front"
)

// ReadTokens reads a token file: one token per line, NAME:SECRET or SECRET. Empty lines and lines that begin
// with # are skipped. The warning is for people, "" if there is none. No error and no warning contains a
// secret.
func ReadTokens(path string) (tokens []front.Token, warning string, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", exit.NotFoundf("token file: %w", err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("token file: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", fmt.Errorf("token file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		warning = fmt.Sprintf("token file %s can be read by others (mode %04o): chmod 0600 it", path, mode)
	}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, secret, named := strings.Cut(line, ":")
		if !named {
			name, secret = fmt.Sprintf("line %d", number), line
		}
		if strings.TrimSpace(secret) == "" {
			return nil, "", exit.Usagef("token file %s:%d: the secret is empty", path, number)
		}
		tokens = append(tokens, front.Token{Name: strings.TrimSpace(name), Secret: strings.TrimSpace(secret)})
	}
	if len(tokens) == 0 {
		return nil, "", exit.Usagef("token file %s holds no token", path)
	}
	return tokens, warning, nil
}

// ClientToken returns the token that a command sends to a daemon: JOBDIR_TOKEN, else the first of the token
// file.
func (c *Config) ClientToken() (string, error) {
	if token, ok := os.LookupEnv(tokenVariable); ok && token != "" {
		return token, nil
	}
	if c.TokenFile == "" {
		return "", nil
	}
	tokens, _, err := ReadTokens(c.TokenFile)
	if err != nil {
		return "", err
	}
	return tokens[0].Secret, nil
}

// tokenVariable contains a secret, so the daemon removes it from the environment of its work.
const tokenVariable = "JOBDIR_TOKEN" //nolint:gosec // the name of a variable
