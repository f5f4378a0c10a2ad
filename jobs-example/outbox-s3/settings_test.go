package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// complete is an environment with all that is needed.
var complete = map[string]string{
	"MONGO_URI": "mongodb://u:p%40ss@main:27017/?w=1", "MINIO_ENDPOINT": "s3:9000",
	"MINIO_ACCESS_KEY": "key", "MINIO_SECRET_KEY": "secret",
}

func TestSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string // beside complete; "" is not set
		want func(s settings) bool
		err  string
	}{
		"defaults": {want: func(s settings) bool {
			return s.mode == modeFollow && s.runnerURI == s.mongoURI && !s.secure && s.every == time.Second &&
				s.retry == 5*time.Second
		}},
		"environment": {
			env: map[string]string{"RUNNER_MONGO_URI": "mongodb://runner", "MINIO_SECURE": "true"},
			want: func(s settings) bool {
				return s.mongoURI == complete["MONGO_URI"] && s.runnerURI == "mongodb://runner" && s.endpoint == "s3:9000" &&
					s.accessKey == "key" && s.secretKey == "secret" && s.secure
			},
		},
		"flags before the environment": {
			args: []string{
				"--mode=once", "--mongo-uri=mongodb://a", "--runner-mongo-uri=mongodb://b", "--minio-endpoint=c:1",
				"--minio-access-key=d", "--minio-secure=true",
			},
			env: map[string]string{"MINIO_SECURE": "false"},
			want: func(s settings) bool {
				return s.mode == modeOnce && s.mongoURI == "mongodb://a" && s.runnerURI == "mongodb://b" && s.endpoint == "c:1" &&
					s.accessKey == "d" && s.secure
			},
		},
		"an empty flag is none": {args: []string{"--mode=", "--mongo-uri=", "--minio-secure="}, want: func(s settings) bool {
			return s.mode == modeFollow && s.mongoURI == complete["MONGO_URI"] && !s.secure
		}},
		"a secret in a file": {
			env:  map[string]string{"MINIO_SECRET_KEY": "", "MINIO_SECRET_KEY_FILE": file},
			want: func(s settings) bool { return s.secretKey == "from a file" },
		},
		"a file that is not there": {
			env: map[string]string{"MINIO_SECRET_KEY": "", "MINIO_SECRET_KEY_FILE": file + "x"},
			err: "MINIO_SECRET_KEY_FILE: open",
		},
		"a password in an argument": {args: []string{"--mongo-uri=mongodb://u:p@h"}, err: "arguments are not secret"},
		"no flag for the secret":    {args: []string{"--minio-secret-key=x"}, err: "flag provided but not defined"},
		"an argument":               {args: []string{"once"}, err: `unexpected argument "once"`},
		"servers of this machine": {
			env: map[string]string{"MONGO_URI": "", "MINIO_ENDPOINT": ""},
			want: func(s settings) bool {
				return s.mongoURI == "mongodb://127.0.0.1:27017" && s.runnerURI == s.mongoURI && s.endpoint == "127.0.0.1:9000" &&
					s.claim == 3*time.Minute
			},
		},
		"no secret": {
			env: map[string]string{"MINIO_SECRET_KEY": ""},
			err: "MINIO_SECRET_KEY is not set; it is taken from the environment, or from a file that MINIO_SECRET_KEY_FILE names",
		},
		"an unknown mode":             {args: []string{"--mode=twice"}, err: `the mode is "twice"`},
		"MINIO_SECURE says something": {env: map[string]string{"MINIO_SECURE": "yes"}, err: `MINIO_SECURE is "yes"`},
		"an endpoint that is a URL":   {env: map[string]string{"MINIO_ENDPOINT": "https://s3"}, err: "should be HOST:PORT"},
		"no time between tries":       {args: []string{"--retry=0s"}, err: "longer than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := readSettings(c.args, func(name string) string {
				if value, ok := c.env[name]; ok {
					return value
				}
				return complete[name]
			})
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("%v, want %q", err, c.err)
			case c.err == "" && !c.want(s):
				t.Fatalf("%+v", s)
			}
		})
	}
}

func TestWhatIsShownOfAConnectionString(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string][2]string{
		"mongodb://h:1/db":                    {"h:1", ""},
		"mongodb://u:p@h:1,i:2/?replicaSet=r": {"h:1,i:2", "p"},
		"mongodb+srv://u:a%2Fb@h":             {"h", "a%2Fb"},
		"mongodb://u@h":                       {"h", ""},
		"mongodb://u:a@b@h":                   {"h", "a@b"},
		"":                                    {"", ""},
	} {
		if got := [2]string{host(uri), password(uri)}; got != want {
			t.Errorf("%s: %q, want %q", uri, got, want)
		}
	}
}

// Invalid settings: exit code 78, which waits for a person, and no secret in the message.
func TestWrongSettingsEndTheProgram(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{"MONGO_URI=mongodb://h", "MINIO_ACCESS_KEY="},
		{"MONGO_URI=mongodb://user:hunter2@/"},
		{"MONGO_URI=http://user:hunter2@h/"},
		{"MONGO_URI=mongodb://user:hunter2@h/?ssl=maybe"},
		{"MONGO_URI=mongodb://h", "MINIO_ENDPOINT=no host:xx"},
	} {
		p := work(t, append([]string{"MINIO_ENDPOINT=h:1", "MINIO_ACCESS_KEY=k", "MINIO_SECRET_KEY=hunter2"}, env...))
		p.exits(exitConfig)
		if text := p.text(); strings.Contains(text, "hunter2") || strings.Count(text, "\n") != 1 {
			t.Errorf("%q: it says\n%s", env, text)
		}
	}
}
