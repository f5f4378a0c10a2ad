package statefs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childEnv makes the test binary one of the other processes of a test: its value is a key of
// children.
const childEnv = "STATEFS_TEST_CHILD"

// children are the processes that the test binary can act as. Each gets the arguments of the
// process and answers on standard output.
var children = map[string]func(args []string) error{
	"wait":   func([]string) error { return untilEOF() },
	"own":    childOwns,
	"large":  childOwnsAndIsLarge,
	"submit": childSubmits,
	"umask":  childOpensWithUmask,
	"reader": childReads,
	"lists":  childLists,
}

func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childEnv)]; ok {
		if err := run(os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0) // nothing is closed: an unclean exit
	}
	goleak.VerifyTestMain(m)
}

// untilEOF reports that the process is ready and waits until its parent closes the pipe or dies.
func untilEOF() error {
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// childLists lists jobs/ and reports how many markers there are.
func childLists(args []string) error {
	tree, err := Open(args[0], Options{})
	if err != nil {
		return err
	}
	listing, err := tree.List()
	fmt.Println(len(listing.Markers))
	return err
}

func childOwns(args []string) error {
	tree, err := Open(args[0], Options{})
	if err != nil {
		return err
	}
	if _, err := Own(tree); err != nil {
		if locked, ok := errors.AsType[*LockedError](err); ok {
			fmt.Println("locked", locked.PID)
			return nil
		}
		return err
	}
	return untilEOF()
}

// childOwnsAndIsLarge owns a storage and has so much memory that the kernel takes some time to free
// it.
func childOwnsAndIsLarge(args []string) error {
	memory := make([]byte, 256<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	defer runtime.KeepAlive(memory)
	return childOwns(args)
}

// Submit is Draft and Publish of one operation.
func (t *Tree) Submit(_ context.Context, s Submission) (*Record, error) {
	rec, err := t.Draft(s)
	if err != nil {
		return nil, err
	}
	return rec, t.Publish(rec)
}

func childSubmits(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	tree, err := Open(args[0], Options{Durability: Process, Now: func() time.Time { return testTime }})
	if err != nil {
		return err
	}
	for range count {
		rec, err := tree.Submit(context.Background(), Submission{Group: "g", Job: "j"})
		if err != nil {
			return err
		}
		fmt.Println(rec.ID)
	}
	return nil
}

func childOpensWithUmask(args []string) error {
	mask, err := strconv.ParseInt(args[1], 8, 0)
	if err != nil {
		return err
	}
	unix.Umask(int(mask))
	tree, err := Open(args[0], Options{})
	if err != nil {
		return err
	}
	rec, err := tree.Submit(context.Background(), Submission{Group: "g", Job: "j"})
	if err != nil {
		return err
	}
	fmt.Println(rec.ID)
	return nil
}

// childReads reports what a user without rights to some files reads of a storage.
func childReads(args []string) error {
	seen, err := readAsStranger(args[0], args[1])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

// process is a running copy of the test binary.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// command prepares a copy of the test binary that acts as child name.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// start runs child name, which ends with the test at the latest.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	cmd := command(t, name, args...)
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // an error if the test has ended it already
	})
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the other process said nothing: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// kill ends the process with SIGKILL and waits for it.
func (p *process) kill(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Signal(syscall.SIGKILL))
	_ = p.cmd.Wait() // killed: always an error
}

var testTime = time.Date(2025, 11, 26, 13, 7, 0, 123456000, time.FixedZone("", 3600))

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openTree(t *testing.T, dir string, options Options) *Tree {
	t.Helper()
	tree, err := Open(dir, options)
	check(t, err)
	t.Cleanup(func() { check(t, tree.Close()) })
	return tree
}

// own opens and owns a new storage, without syncs.
func own(t *testing.T) *Owner {
	t.Helper()
	return ownTree(t, openTree(t, t.TempDir(), Options{Durability: Process}))
}

func ownTree(t *testing.T, tree *Tree) *Owner {
	t.Helper()
	o, err := Own(tree)
	check(t, err)
	t.Cleanup(func() { check(t, o.Release()) })
	return o
}

func submit(t *testing.T, tree *Tree) *Record {
	t.Helper()
	rec, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"})
	check(t, err)
	return rec
}

// foreignID returns the ID of a foreign operation.
func foreignID(t *testing.T, pid int) ID {
	t.Helper()
	id, err := MakeID("other-program", testTime, pid, 7)
	check(t, err)
	return id
}

// put writes a file of the storage as a user would.
func put(t *testing.T, tree *Tree, content string, elem ...string) string {
	t.Helper()
	name := filepath.Join(append([]string{tree.Dir()}, elem...)...)
	check(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// age sets the times of a file back.
func age(t *testing.T, name string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	check(t, os.Chtimes(name, then, then))
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s holds\n\t%s\nwant\n\t%s", filepath.Base(dir), strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// await receives a value, and fails the test on a timeout.
func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s within a minute", what)
		panic("unreachable")
	}
}

// finish ends an operation as the daemon does; marker is "" if there is none.
func finish(o *Owner, rec *Record, marker State) error {
	if err := o.WriteEnd(rec); err != nil {
		return err
	}
	if err := o.RemoveMarker(rec.ID, marker); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // a sweep, or an earlier call, has removed it
}
