package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

func TestObserve(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	id := submit(t, tree).ID
	put(t, tree, "", jobsDir, RequestName(id, Cancel))
	put(t, tree, "", jobsDir, MarkerName(id, Paused))
	put(t, tree, "", jobsDir, id.String()+".running.bak")
	check(t, os.Mkdir(filepath.Join(tree.JobsDir(), RequestName(id, Pause)), 0o700))
	sight, err := tree.ObserveAll(id)
	check(t, err)
	if !slices.Equal(sight.States, []State{Queued, Paused}) || !slices.Equal(sight.Requests, []Action{Cancel}) ||
		!slices.Equal(sight.Irregular, []string{RequestName(id, Pause)}) {
		t.Errorf("the look saw %+v", sight)
	}
	if state, err := tree.State(id); err != nil || state != Queued {
		t.Errorf("the state is %q, %v", state, err)
	}
	if _, err := tree.State(foreignID(t, 1)); !errors.Is(err, ErrNotLive) {
		t.Errorf("the state of nothing: %v", err)
	}
	if sight, err := tree.ObserveAll(ID{}); err != nil || len(sight.States)+len(sight.Requests)+len(sight.Irregular) > 0 {
		t.Errorf("the look at no ID saw %+v, %v", sight, err)
	}
}

// TestMarkerThatIsRenamedAllTheTime: a marker that is renamed continuously never counts as missing.
func TestMarkerThatIsRenamedAllTheTime(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := errors.Join(o.Move(id, Queued, Paused), o.Move(id, Paused, Queued)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 5000 {
		if _, err := o.State(id); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	await(t, stopped, "end of the renaming")
}

// hostile are file kinds that may appear in jobs/ under the name of a marker or a request.
func hostile(t *testing.T, tree *Tree, target string) map[string]func(path string) error {
	t.Helper()
	kinds := map[string]func(path string) error{
		"link to a file inside":  func(path string) error { return os.Symlink("../storage.json", path) },
		"link to a file outside": func(path string) error { return os.Symlink(target, path) },
		"link to a folder":       func(path string) error { return os.Symlink("../tmp", path) },
		"link to nothing":        func(path string) error { return os.Symlink("nothing", path) },
		"link to itself":         func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"folder":                 func(path string) error { return os.Mkdir(path, 0o750) },
		"folder that holds a file": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o750), os.WriteFile(path+"/x", nil, 0o600))
		},
		"fifo":        func(path string) error { return unix.Mkfifo(path, 0o600) },
		"unix socket": func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	}
	if os.Getuid() == 0 {
		// Endless zeros.
		kinds["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }
	}
	return kinds
}

func TestHostileFilesAreIgnoredCountedAndReported(t *testing.T) {
	t.Parallel()
	o := own(t)
	target := filepath.Join(t.TempDir(), "target")
	check(t, os.WriteFile(target, []byte("precious"), 0o600))
	var before, after unix.Stat_t
	check(t, unix.Stat(target, &before))

	live := submit(t, o.Tree)
	var odd []string
	for _, place := range hostile(t, o.Tree, target) {
		for _, name := range []string{
			MarkerName(newID(t, o), Running), RequestName(newID(t, o), Cancel),
			newID(t, o).String() + ".bak",
		} {
			check(t, place(filepath.Join(o.JobsDir(), name)))
			odd = append(odd, name)
		}
		request := RequestName(live.ID, Actions()[len(odd)%len(Actions())])
		if _, err := os.Lstat(filepath.Join(o.JobsDir(), request)); err != nil {
			check(t, place(filepath.Join(o.JobsDir(), request)))
			odd = append(odd, request)
		}
	}
	strange := []string{"line\nbreak.running", "\xff\xfe", strings.Repeat("n", 255), ".hidden", " ", "*"}
	for _, name := range strange {
		put(t, o.Tree, "", jobsDir, name)
	}
	slices.Sort(odd)
	all := names(t, o.JobsDir())

	listing, err := o.List()
	check(t, err)
	slices.Sort(listing.Irregular)
	if !slices.Equal(listing.Irregular, odd) || listing.Stray != len(strange) ||
		len(listing.Requests)+len(listing.Unknown) != 0 {
		t.Errorf("odd %q\nwant %q\nstrange %d, requests %v, unknown %v", listing.Irregular, odd, listing.Stray,
			listing.Requests, listing.Unknown)
	}
	if len(listing.Markers) != 1 || listing.Markers[0].ID != live.ID || len(listing.IDs()) != 1 {
		t.Errorf("the live ones are %v", listing.Markers)
	}
	if want := uint64(len(odd) + len(strange)); o.Ignored() != want {
		t.Errorf("%d names ignored, want %d", o.Ignored(), want)
	}

	for _, name := range odd {
		if stamp, err := o.Stamp(name); !errors.Is(err, files.ErrIrregular) {
			t.Errorf("%s was read: %+v, %v", name, stamp, err)
		}
		parsed, _ := ParseName(name)
		if sight, err := o.ObserveAll(parsed.ID); err != nil || len(sight.Requests) > 0 || parsed.ID != live.ID &&
			len(sight.States) > 0 {
			t.Errorf("%s was seen as %+v, %v", name, sight, err)
		}
		if parsed.Action != "" {
			if taken, ok, err := o.Requests.Take(parsed.ID, parsed.Action); ok || err == nil {
				t.Errorf("%s was taken: %+v, %v", name, taken, err)
			}
		}
	}

	findings, err := o.Sweep(nil)
	check(t, err)
	reported := make(map[string]bool)
	for _, f := range findings {
		reported[strings.TrimPrefix(f.File, jobsDir+"/")] = true
		if f.Action != SweepReportOnly || f.Reason == "" {
			t.Errorf("%+v", f)
		}
	}
	for _, name := range odd {
		if !reported[name] {
			t.Errorf("%s is not reported", name)
		}
	}
	wantNames(t, o.JobsDir(), all...)
	check(t, unix.Stat(target, &after))
	if before.Atim != after.Atim || before.Mtim != after.Mtim || after.Size != 8 {
		t.Error("the target of a link was opened or changed")
	}
}

// newID returns an unused ID.
func newID(t *testing.T, o *Owner) ID {
	t.Helper()
	n, err := o.numbers.take()
	check(t, err)
	id, err := MakeID("other-program", testTime, 1, n)
	check(t, err)
	return id
}

// TestRequestBesideHostileNames: a folder with the name of a request does not hide another request.
func TestRequestBesideHostileNames(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	opposite := filepath.Join(o.JobsDir(), RequestName(id, Resume))
	check(t, os.Mkdir(opposite, 0o750))
	check(t, o.Request(t.Context(), id, Pause, nil))
	if _, err := os.Lstat(opposite); err != nil {
		t.Errorf("the folder is gone: %v", err)
	}
	target := put(t, o.Tree, "precious", "target")
	check(t, os.Symlink(target, filepath.Join(o.JobsDir(), RequestName(id, Cancel))))
	check(t, o.Request(t.Context(), id, Cancel, nil))
	sight, err := o.ObserveAll(id)
	check(t, err)
	if !slices.Equal(sight.Requests, []Action{Pause, Cancel}) {
		t.Errorf("the requests are %+v", sight)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("the target of the link holds %q, %v", got, err)
	}
	err = o.Request(t.Context(), id, Resume, nil)
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.File != "jobs/"+RequestName(id, Resume) {
		t.Errorf("a request over a folder: %v", err)
	}
}

func TestNamesOfTheGreatestLength(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := newID(t, o)
	name := id.String() + "." + strings.Repeat("x", 254-len(id.String()))
	age(t, put(t, o.Tree, "content", jobsDir, name), tempAge)
	breaks := id.String() + ".\n\xff"
	age(t, put(t, o.Tree, "content", jobsDir, breaks), tempAge)
	listing, err := o.List()
	check(t, err)
	if len(listing.Unknown) != 2 {
		t.Fatalf("the unknown ones are %v", listing.Unknown)
	}
	check(t, o.Quarantine(name, "it is too long"))
	check(t, o.Quarantine(breaks, "it has a line break"))
	wantNames(t, o.JobsDir())
	var reasons []byte
	for _, file := range names(t, filepath.Join(o.Dir(), corruptDir)) {
		data, err := os.ReadFile(filepath.Join(o.Dir(), corruptDir, file))
		check(t, err)
		if strings.HasSuffix(file, ".reason") {
			reasons = append(reasons, data...)
		} else if string(data) != "content" {
			t.Errorf("%s holds %q", file, data)
		}
	}
	if !bytes.Contains(reasons, []byte(name)) || bytes.Count(reasons, []byte("\n")) != 4 {
		t.Errorf("the reasons are %q", reasons)
	}
}

// strangerSees is what a process without rights to a file reads.
type strangerSees struct {
	Markers         int
	Stamp           string
	Taken, Again    time.Time
	Permission      bool
	Findings, Swept string
}

func readAsStranger(dir, marker string) (strangerSees, error) {
	var seen strangerSees
	tree, err := Open(dir, Options{Durability: Process})
	if err != nil {
		return seen, err
	}
	o, err := Own(tree)
	if err != nil {
		return seen, errors.Join(err, tree.Close())
	}
	listing, err := o.List()
	seen.Markers = len(listing.Markers)
	_, stampErr := o.Stamp(marker)
	seen.Stamp, seen.Permission = stampErr.Error(), errors.Is(stampErr, fs.ErrPermission)
	name, _ := ParseName(marker)
	taken, _, takeErr := o.Requests.Take(name.ID, Cancel)
	back, untakeErr := o.Requests.Restore()
	again, _, againErr := o.Requests.Take(name.ID, Cancel)
	seen.Taken, seen.Again = taken.At.At, again.At.At
	if back != 1 {
		untakeErr = errors.Join(untakeErr, fmt.Errorf("%d were put back", back))
	}
	err = errors.Join(err, takeErr, untakeErr, againErr)
	findings, sweepErr := o.Sweep(nil)
	text, jsonErr := json.Marshal(findings)
	seen.Findings = string(text)
	if sweepErr != nil {
		seen.Swept = sweepErr.Error()
	}
	return seen, errors.Join(err, jsonErr, o.Release(), tree.Close())
}

func TestFilesWithoutPermission(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	id := foreignID(t, 1<<22+1) // no process has this PID
	marker := put(t, tree, "", jobsDir, MarkerName(id, Running))
	request := put(t, tree, "", jobsDir, RequestName(id, Cancel))
	asked := time.Now().Add(-tempAge).Truncate(time.Second)
	check(t, os.Chtimes(request, asked, asked))
	var seen strangerSees
	if os.Getuid() != 0 {
		check(t, os.Chmod(marker, 0))
		check(t, os.Chmod(request, 0))
		var err error
		seen, err = readAsStranger(tree.Dir(), filepath.Base(marker))
		check(t, err)
	} else {
		// The files stay with root; everything else goes to another user.
		check(t, os.Chmod(filepath.Dir(tree.Dir()), 0o755))
		check(t, filepath.WalkDir(tree.Dir(), func(path string, _ fs.DirEntry, err error) error {
			if path == marker || path == request {
				return err
			}
			return errors.Join(err, os.Chown(path, nobody, nobody))
		}))
		cmd := command(t, "reader", tree.Dir(), filepath.Base(marker))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		check(t, json.Unmarshal(out, &seen))
	}
	if seen.Markers != 1 || !seen.Permission || !seen.Taken.Equal(asked) || !seen.Again.Equal(asked) ||
		seen.Findings != "null" || !strings.Contains(seen.Swept, "permission denied") ||
		!strings.Contains(seen.Swept, id.String()) {
		t.Errorf("without rights: %+v", seen)
	}
	// The request was carried out by its name.
	wantNames(t, tree.JobsDir(), filepath.Base(marker))
	wantNames(t, filepath.Join(tree.Dir(), takenDir), filepath.Base(request))
}

// TestObserveWhileTheTreeIsClosed: a tree that is closed while in use returns errors, never data of
// another folder.
func TestObserveWhileTheTreeIsClosed(t *testing.T) {
	t.Parallel()
	for range 20 {
		tree, err := Open(t.TempDir(), Options{Durability: Process})
		check(t, err)
		id := submit(t, tree).ID
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					sight, err := tree.ObserveAll(id)
					if err != nil {
						return
					}
					if len(sight.States) != 1 {
						t.Errorf("the look saw %+v", sight)
						return
					}
				}
			})
		}
		check(t, tree.Close())
		wg.Wait()
	}
}
