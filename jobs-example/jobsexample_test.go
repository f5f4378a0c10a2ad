package jobsexample_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	jobsexample "github.com/jobdir/jobdir/jobs-example"
)

func TestDefinitionsAndHandlersBelongTogether(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(jobsexample.Handlers()))
	jobs := catalog.New(catalog.Options{Extra: jobsexample.Definitions(), Handlers: func() []string { return names }})
	if err := jobs.Reload(); err != nil {
		t.Fatal(err)
	}
	var addresses, used []string
	for _, job := range jobs.All() {
		addresses = append(addresses, job.Address())
		if job.Handler != "" {
			used = append(used, job.Handler)
		}
		if job.Summary == "" {
			t.Errorf("%s has no summary", job.Address())
		}
		for _, p := range job.Params {
			if p.Summary == "" {
				t.Errorf("%s: parameter %s has no summary", job.Address(), p.Name)
			}
		}
	}
	slices.Sort(used)
	if !slices.Equal(used, names) {
		t.Errorf("jobs use the handlers %q, there are %q", used, names)
	}
	want := []string{
		"commands/nightly", "commands/parts", "commands/shell-task", "curator/check", "curator/download", "curator/publish",
		"curator/transcode",
		"files/checksum", "files/compress", "media/pipeline", "parse/title", "testrouter/streaming01",
	}
	if !slices.Equal(addresses, want) {
		t.Errorf("jobs %q, want %q", addresses, want)
	}
}

// The job of outbox-s3 is a file alone: its program is a module of its own, in which nothing can be embedded from here.
func TestDefinitionsInTheFolderAreTheEmbeddedOnes(t *testing.T) {
	t.Parallel()
	folder := catalog.New(catalog.Options{Dirs: []string{"."}})
	embedded := catalog.New(catalog.Options{Extra: jobsexample.Definitions()})
	for _, jobs := range []*catalog.Catalog{folder, embedded} {
		if err := jobs.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	const apart = "detection/store"
	in := slices.DeleteFunc(slices.Clone(folder.All()),
		func(job *catalog.Definition) bool { return job.Address() == apart })
	same := slices.EqualFunc(in, embedded.All(), func(a, b *catalog.Definition) bool { return a.Hash() == b.Hash() })
	if !same || len(in) != len(folder.All())-1 {
		t.Errorf("a daemon with --jobs jobs-example and one with Definitions() have different jobs, beside %s", apart)
	}
}
