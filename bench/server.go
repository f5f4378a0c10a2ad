package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// The jobs of a run. held and simulated wait until they are cancelled, as a command and as a handler.
var jobFiles = map[string]string{
	"held.yaml":      "group: bench\nunique: {on_hit: off}\nname: held\nsummary: Waits\nrun: [sh, -c, 'echo started; exec sleep 3600']\n",
	"simulated.yaml": "group: bench\nunique: {on_hit: off}\nname: simulated\nsummary: Waits\nparams:\n  files: {type: integer, default: 1000000}\nhandler: streaming01\n",
	"nothing.yaml":   "group: bench\nunique: {on_hit: off}\nname: nothing\nsummary: Ends at once\nparams:\n  files: {type: integer, default: 0}\nrun: ['true']\n",
	"trivial.yaml": "group: bench\nunique: {on_hit: off}\nname: trivial\nsummary: Ends at once, without a word\nparams:\n" +
		"  files: {type: integer, default: 0}\nhandler: streaming01\n",
	"writer.yaml": "group: bench\nunique: {on_hit: off}\nname: writer\nsummary: Writes lines\nparams:\n  lines: {type: integer, required: true}\n" +
		"  each: {type: integer, required: true}\n  gate: {type: string, required: true}\nenv: {" + roleVariable +
		": writer}\nrun: [%q]\n",
}

// Jobs of the server of this program.
var ownJobFiles = map[string]string{
	"lines.yaml": "group: bench\nunique: {on_hit: off}\nname: lines\nsummary: Writes lines\nparams:\n  lines: {type: integer, required: true}\n" +
		"  each: {type: integer, required: true}\n  gate: {type: string, required: true}\nhandler: lines\n",
	"hold.yaml": "group: bench\nunique: {on_hit: off}\nname: hold\nsummary: Waits\nhandler: hold\n",
}

// server is a running daemon with a storage of its own.
type server struct {
	*child
	base    string // of its URLs
	storage string
	logFile string // of the program; empty for a role
}

func (s *server) jobs() string  { return filepath.Join(s.storage, "jobs") }
func (s *server) taken() string { return filepath.Join(s.storage, "taken") }

// logPath is where the log of an operation is; the day is the second part of an ID.
func (s *server) logPath(id string) string {
	day := idDay.FindStringSubmatch(id)[1]
	return filepath.Join(s.storage, "operations", day, id+".log")
}

var (
	idDay   = regexp.MustCompile(`_(\d{4}-\d{2}-\d{2})_\d{2}-\d{2}-\d{2}_p\d+_r\d+$`)
	serving = regexp.MustCompile(`serving (http://[^ ,]+)`)
)

// startServer starts the built program on a new storage.
func (b *bench) startServer(ctx context.Context, flags ...string) (*server, error) {
	storage, err := b.folder("storage")
	if err != nil {
		return nil, err
	}
	return b.startServerOn(ctx, storage, flags...)
}

// startServerOn starts the built program on a storage that is there.
func (b *bench) startServerOn(ctx context.Context, storage string, flags ...string) (*server, error) {
	return b.startProgram(ctx, b.binary, 0, storage, flags...)
}

// startProgram starts a program, built from this tree or given, with a limit of open files unless that is 0.
func (b *bench) startProgram(ctx context.Context, program string, files int, storage string,
	flags ...string,
) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	definitions := make(map[string]string, len(jobFiles))
	for name, text := range jobFiles {
		if name == "writer.yaml" {
			text = fmt.Sprintf(text, self)
		}
		definitions[name] = text
	}
	jobs, err := b.definitions(definitions)
	if err != nil {
		return nil, err
	}
	// Its log goes to a file, as with a service manager; the line that says where it serves is seen by inotify.
	logs, err := b.folder("log")
	if err != nil {
		return nil, err
	}
	logPath := filepath.Join(logs, "daemon.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	defer log.Close()
	seen, err := watch(inModify, nil, logPath)
	if err != nil {
		return nil, err
	}
	defer seen.close()
	args := append([]string{
		"serve", "--storage", storage, "--jobs", jobs, "--listen", "127.0.0.1:0", "--durability", b.durability, "--grace",
		"2s", "--on-stop", "interrupt",
	}, flags...)
	if files > 0 {
		args = append([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(files), program}, args...)
		program = "sh"
	}
	cmd := exec.Command(program, args...) //nolint:noctx // stop ends it, in order
	cmd.Stderr = log
	c, err := start(ctx, "server", cmd)
	if err != nil {
		return nil, err
	}
	s := &server{child: c, storage: storage, logFile: logPath}
	_, err = seen.await(ctx, "the server to serve", func(event) bool {
		data, _ := os.ReadFile(logPath)
		if found := serving.FindSubmatch(data); found != nil {
			s.base = string(found[1])
		}
		return s.base != "" || exited(c)
	})
	if err == nil && s.base == "" {
		err = errors.New("the server ended")
	}
	if err != nil {
		data, _ := os.ReadFile(logPath)
		return nil, errors.Join(fmt.Errorf("start the server: %w\n%s", err, data), s.stop(ctx))
	}
	return s, nil
}

func exited(c *child) bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// definitions makes a folder of job definitions.
func (b *bench) definitions(files map[string]string) (jobs string, err error) {
	if jobs, err = b.folder("definitions"); err != nil {
		return "", err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(jobs, name), []byte(text), 0o640); err != nil {
			return "", fmt.Errorf("write a job: %w", err)
		}
	}
	return jobs, nil
}

// stop ends the daemon, and removes its storage.
func (s *server) stop(ctx context.Context) error {
	return errors.Join(s.halt(ctx), os.RemoveAll(s.storage))
}

// halt ends the daemon, and commands that it should have ended.
func (s *server) halt(ctx context.Context) error {
	err := s.child.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	mark, endErr := statefs.MarkOf(s.storage)
	if endErr == nil && mark != "" {
		var left int
		if left, endErr = keeper.EndStrays(ctx, mark, time.Second); left > 0 {
			endErr = errors.Join(endErr, fmt.Errorf("the server left %d processes behind", left))
		}
	}
	return errors.Join(err, endErr)
}

// ownServer is the argument of the role server, and what it says when it serves.
type ownServer struct {
	Storage, Jobs, Durability string
	Commit                    statefs.CommitMethod // "" is the default
	Base                      string
}

// startOwnServer starts this program as a daemon with handlers that write and wait.
func (b *bench) startOwnServer(ctx context.Context, _ ...string) (*server, error) {
	jobs, err := b.definitions(ownJobFiles)
	if err != nil {
		return nil, err
	}
	storage, err := b.folder("storage")
	if err != nil {
		return nil, err
	}
	var said ownServer
	c, err := startRole(ctx, "server", ownServer{Storage: storage, Jobs: jobs, Durability: b.durability}, &said)
	if err != nil {
		return nil, err
	}
	return &server{child: c, base: said.Base, storage: storage}, nil
}

func terminated() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx, stop
}

func playServer(ctx context.Context, argument []byte) error {
	var o ownServer
	if err := json.Unmarshal(argument, &o); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go answerHeap(stop)
	return cli.Serve(ctx, cli.ServeConfig{
		Storage: o.Storage, Jobs: []string{o.Jobs}, Listen: []string{"127.0.0.1:0"},
		Durability: statefs.Durability(o.Durability),
		Work:       config.Work{Grace: 2 * time.Second}, Logger: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelWarn})),
		Handlers: work.Handlers{"hold": {Run: hold}, "lines": {Run: writeLines}},
		Serving: func(s cli.Serving) {
			say(ownServer{Base: s.Addresses[0]})
		},
	})
}

// say answers the run with one line.
func say(value any) {
	_ = json.NewEncoder(os.Stdout).Encode(value) // the run notices a line that does not come
}

// answerHeap collects garbage for each byte of stdin and says how much memory is in use then, and calls end at the
// end of stdin.
func answerHeap(end func()) { answerBytes(end, nil) }

// answerBytes is answerHeap with other answers for some bytes.
func answerBytes(end func(), others map[byte]func()) {
	defer end()
	for one := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(one); err != nil {
			return
		}
		if other := others[one[0]]; other != nil {
			other()
			continue
		}
		runtime.GC()         // it only begins to empty pools
		debug.FreeOSMemory() // a second collection, whose free pages go back
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		say(m.HeapAlloc + m.StackInuse)
	}
}

// hold waits until it is cancelled.
func hold(_ context.Context, op *work.Op) error {
	op.Logf("started")
	return op.Sleep(time.Hour)
}

// writeLines writes lines when its gate opens: a named pipe that the run opens when all readers are there.
func writeLines(_ context.Context, op *work.Op) error {
	number := func(name string) int {
		n, _ := strconv.Atoi(op.Params().Get(name)) // the definition says that it is an integer
		return n
	}
	return emit(op, op.Params().Get("gate"), number("lines"), number("each"))
}

// playWriter is the command that does the same.
func playWriter(context.Context, []byte) error {
	lines, err := strconv.Atoi(os.Getenv("JOBDIR_PARAM_LINES"))
	each, err2 := strconv.Atoi(os.Getenv("JOBDIR_PARAM_EACH"))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	return emit(os.Stdout, os.Getenv("JOBDIR_PARAM_GATE"), lines, each)
}

// startFunc starts a daemon: the built one or our own.
type startFunc func(ctx context.Context, flags ...string) (*server, error)
