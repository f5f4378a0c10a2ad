package jobsexample_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

var update = flag.Bool("update", false, "rewrite the pictures of the directory in README.md from this run")

// pictures begins the part of README.md that is made here.
const pictures = "### "

// picture says how the pictures of a job are taken. The suffixes name the files that must be there before a picture
// is taken, because they are what is written last.
type picture struct {
	job, command    string
	running, paused string
	artifact        string
}

func TestReadmeShowsTheRealDirectory(t *testing.T) {
	t.Parallel()
	bin := program(t)
	var text strings.Builder
	for _, p := range []picture{
		{"testrouter/streaming01", "jobdir run -d testrouter/streaming01 files=1000", ".items.ndjson", ".progress", ""},
		{"files/checksum", "jobdir run -d files/checksum path=$FOLDER", ".progress", ".progress", ""},
		{"files/compress", "jobdir run -d files/compress path=$FOLDER suffix=img", ".artifacts", ".progress", "one.img.gz"},
		{"commands/shell-task", "jobdir run -d commands/shell-task steps=1000", ".progress", ".progress", ""},
	} {
		fmt.Fprintf(&text, "%s%s\n\n```console\n", pictures, p.job)
		newStage(t, bin, &text).take(p)
		text.WriteString("```\n\n")
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, shown, _ := strings.Cut(string(readme), "\n"+pictures)
	made := strings.TrimSuffix(text.String(), "\n")
	if *update {
		write(t, "README.md", before+"\n"+made)
		return
	}
	if got, want := general(pictures+shown), general(made); got != want {
		t.Errorf("README.md shows\n%s\nbut the directory looks like this; run the test with -update\n%s", got, want)
	}
}

// general makes two runs comparable: it takes out what is another in each.
func general(text string) string {
	text = regexp.MustCompile(`_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_p\d+_r\d+`).ReplaceAllString(text, "_DATE_TIME_pPID_rN")
	return regexp.MustCompile(`operations/\d{4}-\d\d-\d\d`).ReplaceAllString(text, "operations/DATE")
}

// stage is a daemon process on a new storage, in which a person types and a protocol is kept.
type stage struct {
	t       *testing.T
	dir     string
	env     []string
	daemon  *exec.Cmd
	written io.Writer
}

func newStage(t *testing.T, bin string, written io.Writer) *stage {
	t.Helper()
	dir, folder := filepath.Join(t.TempDir(), "storage"), t.TempDir()
	for _, name := range []string{"one.img", "two.img"} {
		write(t, filepath.Join(folder, name), "")
		if err := os.Truncate(filepath.Join(folder, name), 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{t: t, dir: dir, written: written}
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "JOBDIR_STORAGE="+dir, "FOLDER="+folder, "LC_ALL=C")
	s.daemon = exec.Command(bin+"/jobdir", "serve", "--jobs", ".", "--storage", dir, "--listen", "127.0.0.1:0")
	s.daemon.Env = s.env
	s.serve()
	return s
}

// serve starts the daemon, and returns when it serves. It ends with the test at the latest.
func (s *stage) serve() {
	t := s.t
	t.Helper()
	stderr, err := s.daemon.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.daemon.ProcessState == nil {
			_ = s.daemon.Process.Signal(syscall.SIGCONT) // it may be held
			s.stop()
		}
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "jobdir: serving") {
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // ends with the daemon
			return
		}
		t.Log(lines.Text())
	}
	t.Fatal("the daemon did not start")
}

func (s *stage) take(p picture) {
	s.t.Helper()
	id, err := statefs.ParseID(strings.TrimSpace(s.run(p.command)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.env = append(s.env, "ID="+id.String())
	day := filepath.Join(s.dir, "operations", id.Day())
	fmt.Fprintf(s.written, "$ ID=$(%s)\n", p.command)
	await(s.t, day, id.String()+p.running)
	await(s.t, day, id.String()+".json") // it follows the marker
	if p.artifact != "" {
		await(s.t, filepath.Join(day, id.String()+".artifacts"), p.artifact)
	}
	await(s.t, s.dir+"/jobs", statefs.MarkerName(id, statefs.Running))
	s.typed("ls jobs")
	s.typed("ls -p operations/" + id.Day())
	s.held(func() {
		s.typed("touch jobs/$ID.pause_requested; ls jobs")
	})
	await(s.t, s.dir+"/jobs", statefs.MarkerName(id, statefs.Paused))
	await(s.t, day, id.String()+p.paused)
	s.typed("ls jobs")
	s.held(func() {
		s.typed("touch jobs/$ID.cancel_requested; ls jobs")
	})
	s.run("jobdir wait $ID || [ $? -eq 130 ]")
	s.stop() // it has then tidied up
	s.typed("ls jobs")
	s.typed("ls -p operations/" + id.Day())
}

// held calls do while the daemon is stopped.
func (s *stage) held(do func()) {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.awaitStop()
	do()
	s.signal(syscall.SIGCONT)
}

func (s *stage) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.daemon.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// awaitStop returns when the daemon is stopped. The signal alone does not ensure that: it may still be
// pending, and the kernel notifies the parent only when the last thread has stopped.
func (s *stage) awaitStop() {
	s.t.Helper()
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(s.daemon.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || !status.Stopped():
			s.t.Fatalf("the daemon does not stop: %v, %#x", err, status)
		default:
			return
		}
	}
}

// stop ends the daemon as a service manager does.
func (s *stage) stop() {
	s.t.Helper()
	if err := s.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	if err := s.daemon.Wait(); err != nil {
		s.t.Errorf("daemon: %v", err)
	}
}

// typed runs a command line in the storage directory and writes it down with what it printed.
func (s *stage) typed(line string) {
	s.t.Helper()
	fmt.Fprintf(s.written, "$ %s\n%s", line, s.run(line))
}

func (s *stage) run(line string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = s.dir, s.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", line, err, stderr.String())
	}
	return string(out)
}
