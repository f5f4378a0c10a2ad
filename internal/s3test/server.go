package s3test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jobdir/jobdir/internal/addrtest"
)

// The credentials of a server when Config says none.
const (
	AccessKey = "jobdirtest"
	SecretKey = "jobdirtestsecret"
)

// startLimit is how long a server may take to listen.
const startLimit = 2 * time.Minute

// Config says how a server runs. It may be changed while it does not.
type Config struct {
	AccessKey, SecretKey string
	// ReadOnly has it refuse what changes something; Versity alone can.
	ReadOnly bool
	// CertFile and KeyFile have it speak TLS; Versity alone can.
	CertFile, KeyFile string
}

// Server is one process that speaks S3. It is not safe for concurrent use, except for what asks it.
type Server struct {
	Config

	kind    Kind
	program string
	dir     string
	addr    *addrtest.Address
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process is gone
	output  *os.File
}

// New prepares a server with its data below dir; it does not run. The error says how to install the program when it
// is missing.
func New(kind Kind, dir string) (*Server, error) {
	program, err := Find(kind)
	if err != nil {
		return nil, err
	}
	s := &Server{Config: Config{AccessKey: AccessKey, SecretKey: SecretKey}, kind: kind, program: program, dir: dir}
	s.addr, err = addrtest.Hold()
	return s, errors.Join(err, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
}

// Kind is which program it is.
func (s *Server) Kind() Kind { return s.kind }

// Addr is the host and port.
func (s *Server) Addr() string { return s.addr.String() }

// URL is the endpoint.
func (s *Server) URL() string {
	if s.CertFile != "" {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// command is how the program is called, and what says that it is ready.
func (s *Server) command() (cmd *exec.Cmd, ready string) {
	data := filepath.Join(s.dir, "data")
	if s.kind == MinIO {
		cmd = exec.Command(s.program, "server", "--address", s.Addr(), "--quiet", data)
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey, "MINIO_UPDATE=off",
			"MINIO_BROWSER=off")
		return cmd, "/minio/health/ready"
	}
	args := []string{"--port", s.Addr(), "--quiet", "--health", "/healthz"}
	if s.ReadOnly {
		args = append(args, "--readonly")
	}
	if s.CertFile != "" {
		args = append(args, "--cert", s.CertFile, "--key", s.KeyFile)
	}
	cmd = exec.Command(s.program, append(args, "posix", data)...)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	return cmd, "/healthz"
}

// Start runs the server and returns when it can be asked.
func (s *Server) Start(ctx context.Context) error {
	cmd, ready := s.command()
	var err error
	if s.output, err = os.OpenFile(filepath.Join(s.dir, "output"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = s.output, s.output
	cmd.Dir = s.dir
	killWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, s.output.Close())
	}
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() { // Kill waits for it
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.await(ctx, s.URL()+ready); err != nil {
		s.Kill()
		said, _ := os.ReadFile(s.output.Name())
		return fmt.Errorf("start %s: %w; it said: %s", s.kind.Name, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// await asks until the server is ready: a program of others has no other way to say so.
func (s *Server) await(ctx context.Context, url string) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		err := s.ready(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return err
		case <-look.C:
		}
	}
}

// ready asks whether the server says that it is well, and then whether it really answers: minio says so a moment too
// early.
func (s *Server) ready(ctx context.Context, url string) error {
	health := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is only asked whether it listens
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := health.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	_, err = c.ListBuckets(ctx)
	return err
}

// Kill ends the server immediately, and returns when it is gone. It ignores a server that does not run.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
	_ = s.output.Close()
	s.cmd = nil
}
