package jobsexample

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
)

// What lies in a module of its own, as outbox-s3 does, cannot be embedded here.
//
//go:embed commands/*.yaml curator/*.yaml files/*.yaml media-pipeline/*.yaml parse/*.yaml testrouter/*.yaml
var files embed.FS

// Handlers returns the handlers under the names by which the definitions know them.
func Handlers() work.Handlers {
	return work.Handlers{
		"streaming01": {Run: streaming01, Total: streaming01Total},
		"checksum":    {Run: checksum},
	}
}

// Definitions returns the job files of this folder, for programs that have no copy of it on disk.
func Definitions() []catalog.Source {
	names, err := fs.Glob(files, "*/*.yaml")
	if err != nil {
		panic(fmt.Sprintf("the pattern of the embedded job files is wrong: %v", err))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return path.Base(name) == catalog.ConfigurationFile })
	sources := make([]catalog.Source, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("an embedded file cannot be read: %v", err))
		}
		sources[i] = catalog.Source{Name: "jobs-example/" + name, YAML: text}
	}
	return sources
}

// integer returns an integer parameter; the definition says that it always has a value.
func integer(params catalog.Params, name string) int64 {
	value, _ := params.Lookup(name)
	n, _ := value.Any().(int64)
	return n
}
