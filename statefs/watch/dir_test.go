package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestEachChangeWakesItsKey(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before []string // files that exist when the watch begins
		change func(in func(string) string, outside string) error
		want   []string
	}{
		{"create", nil, func(in func(string) string, _ string) error {
			file, err := os.OpenFile(in("op-a"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			return errors.Join(err, file.Close())
		}, []string{"op-a"}},
		{"write", []string{"op-a"}, func(in func(string) string, _ string) error {
			return os.WriteFile(in("op-a"), []byte("x"), 0o600)
		}, []string{"op-a"}},
		{"truncate", []string{"op-a"}, func(in func(string) string, _ string) error {
			return os.Truncate(in("op-a"), 100)
		}, []string{"op-a"}},
		{"touch of an existing file", []string{"op-a"}, func(in func(string) string, _ string) error {
			return os.Chtimes(in("op-a"), time.Time{}, time.Unix(1, 0))
		}, []string{"op-a"}},
		{"chmod", []string{"op-a"}, func(in func(string) string, _ string) error {
			return os.Chmod(in("op-a"), 0o400)
		}, []string{"op-a"}},
		{"rename inside", []string{"op-a"}, func(in func(string) string, _ string) error {
			return os.Rename(in("op-a"), in("op-b"))
		}, []string{"op-a", "op-b"}},
		{"rename over", []string{"op-a", "op-b"}, func(in func(string) string, _ string) error {
			return os.Rename(in("op-a"), in("op-b"))
		}, []string{"op-a", "op-b"}},
		{"rename in", nil, func(in func(string) string, outside string) error {
			return os.Rename(outside, in("op-a"))
		}, []string{"op-a"}},
		{"rename out", []string{"op-a"}, func(in func(string) string, outside string) error {
			return os.Rename(in("op-a"), outside)
		}, []string{"op-a"}},
		{"unlink", []string{"op-a"}, func(in func(string) string, _ string) error {
			return os.Remove(in("op-a"))
		}, []string{"op-a"}},
		{"unlink of an open file", []string{"op-a"}, func(in func(string) string, _ string) error {
			file, err := os.Open(in("op-a"))
			return errors.Join(err, os.Remove(in("op-a")), file.Close())
		}, []string{"op-a"}},
		{"link", nil, func(in func(string) string, outside string) error {
			return os.Link(outside, in("op-a"))
		}, []string{"op-a"}},
		{"symlink", nil, func(in func(string) string, _ string) error {
			return os.Symlink("nowhere", in("op-a"))
		}, []string{"op-a"}},
		{"mkdir", nil, func(in func(string) string, _ string) error {
			return os.Mkdir(in("op-a"), 0o700)
		}, []string{"op-a"}},
		{"fifo", nil, func(in func(string) string, _ string) error {
			return syscall.Mkfifo(in("op-a"), 0o600)
		}, []string{"op-a"}},
		{"name of raw bytes", nil, func(in func(string) string, _ string) error {
			return os.Mkdir(in("op-\xff\n*"), 0o700)
		}, []string{"op-\xff\n*"}},
		{"unknown names only", nil, func(in func(string) string, _ string) error {
			return os.Mkdir(in("other"), 0o700)
		}, nil},
		{"below a folder in it", []string{"op-dir/"}, func(in func(string) string, _ string) error {
			return os.WriteFile(in("op-dir/op-a"), nil, 0o600)
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			in := func(name string) string { return filepath.Join(dir, name) }
			for _, name := range test.before {
				if name[len(name)-1] == '/' {
					must(t, os.Mkdir(in(name), 0o700))
				} else {
					write(t, in(name), "")
				}
			}
			outside := filepath.Join(t.TempDir(), "x")
			write(t, outside, "")
			d := openDir(t, dir, Options{})
			if d.Mode() != (Mode{Name: ModeInotify}) {
				t.Fatalf("mode %+v", d.Mode())
			}
			start(t, d)
			must(t, test.change(in, outside))
			write(t, in("op-fence"), "")
			keys := takeKey(t, d, "op-fence")
			delete(keys, "op-fence")
			if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, test.want) {
				t.Errorf("keys %q, want %q", got, test.want)
			}
			if stats := d.Stats(); stats.Rescans != 0 || stats.Errors != 0 {
				t.Errorf("unexpected rescan or error: %+v", stats)
			}
		})
	}
}

// A name that went has a key of its own, which does not replace the key of the same name that came.
func TestNamesThatWentHaveTheirOwnKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"op-removed", "op-moved", "op-one", "op-two"} {
		write(t, in(name), "")
	}
	d := openDir(t, dir, Options{})
	d.Gone = func(name string) string { return name + " gone" }
	start(t, d)
	must(t, os.Remove(in("op-removed")))
	must(t, os.Rename(in("op-moved"), in("op-new")))
	must(t, os.Rename(in("op-one"), in("op-two")))
	write(t, in("op-one"), "") // it is there again
	write(t, in("op-fence"), "")
	keys := takeKey(t, d, "op-fence")
	delete(keys, "op-fence")
	want := []string{"op-moved gone", "op-new", "op-one", "op-one gone", "op-removed gone", "op-two"}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
}

func TestKeysAreTakenOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir, Options{})
	noProbeLeft(t, dir)
	for range 50 {
		write(t, filepath.Join(dir, "op-a"), "x")
		write(t, filepath.Join(dir, "op-b"), "x")
		write(t, filepath.Join(dir, "other"), "x")
	}
	start(t, d)
	write(t, filepath.Join(dir, "op-fence"), "")
	deadline := time.After(patience)
	for !d.Pending("op-fence") { // leave everything in the set until the last event has arrived
		select {
		case <-d.Ready():
		case <-deadline:
			t.Fatal("the last event did not arrive")
		}
	}
	if keys, rescan := d.Peek(); len(keys) != 3 || rescan {
		t.Errorf("waiting are %q, rescan %v", keys, rescan)
	}
	keys, rescan := d.Take()
	slices.Sort(keys)
	if want := []string{"op-a", "op-b", "op-fence"}; !slices.Equal(keys, want) || rescan {
		t.Errorf("took %q, rescan %v; want %q", keys, rescan, want)
	}
	if keys, rescan := d.Take(); len(keys) != 0 && !slices.Equal(keys, []string{"op-fence"}) || rescan {
		t.Errorf("second take: %q, rescan %v", keys, rescan)
	}
	if d.Pending("op-a") {
		t.Error("op-a is pending although it was taken")
	}
	if stats := d.Stats(); stats.Unknown == 0 || stats.Events < 150 {
		t.Errorf("stats %+v", stats)
	}

	write(t, filepath.Join(dir, "op-a"), "x")
	takeKey(t, d, "op-a")
}

func TestChangesBeforeRunAreNotLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir, Options{})
	write(t, filepath.Join(dir, "op-a"), "")
	start(t, d)
	takeKey(t, d, "op-a")
}

func TestChangesDuringOpenAreSeenOrListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stop := make(chan struct{})
	var (
		wg   sync.WaitGroup
		made []string
	)
	wg.Go(func() {
		for i := 0; ; i++ {
			name := fmt.Sprintf("op-%d", i)
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Error(err)
				return
			}
			made = append(made, name)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	d := openDir(t, dir, Options{})
	entries, err := os.ReadDir(dir)
	must(t, err)
	close(stop)
	wg.Wait()
	start(t, d)
	write(t, filepath.Join(dir, "op-fence"), "")
	found := takeKey(t, d, "op-fence")
	for _, entry := range entries {
		found[entry.Name()] = true
	}
	for _, name := range made {
		if !found[name] {
			t.Errorf("%s was neither listed nor announced", name)
		}
	}
}

func TestRunOnceAndClose(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, d.Run(ctx))
	if err := d.Run(ctx); err == nil {
		t.Error("a second Run gives no error")
	}
	must(t, d.Close())
	err := d.Check()
	if _, gone := errors.AsType[*GoneError](err); gone || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Check after Close: %v", err)
	}
}

func TestRunReportsAClosedWatcher(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir(), Options{})
	must(t, d.Close())
	if err := d.Run(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("Run on a closed watcher: %v", err)
	}
}

func TestRunWithEndsBoth(t *testing.T) {
	t.Parallel()
	until := func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}
	d := openDir(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, d.RunWith(ctx, until))
	d = openDir(t, t.TempDir(), Options{})
	must(t, d.Close())
	if err := d.RunWith(t.Context(), until); !errors.Is(err, errStopped) {
		t.Errorf("a closed watcher: %v", err)
	}
	d = openDir(t, t.TempDir(), Options{})
	failed := errors.New("the folder cannot be listed")
	if err := d.RunWith(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("handle fails: %v", err)
	}
	if err := d.Check(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Check after RunWith: %v", err)
	}
}

func TestOpenDirErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	if _, err := OpenDir(filepath.Join(dir, "missing"), operationKey, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := OpenDir(filepath.Join(dir, "file"), operationKey, Options{}); err == nil ||
		!strings.Contains(err.Error(), "not a directory") {
		t.Errorf("file: %v", err)
	}
}
