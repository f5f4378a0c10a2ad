package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Folders of the storage that are removed while the daemon runs are created again. If the daemon
// would continue to write into a removed folder, it ends with an error. Commands go on, and the
// next daemon adopts them.
func TestRemovedFolders(t *testing.T) {
	t.Parallel()
	for folder, ends := range map[string]bool{
		"new": false, "definitions": false, "corrupt": false, "tmp": false,
		"operations/DAY": false, "taken": true, "operations": true,
	} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept)
			k.config.SweepInterval = 20 * time.Millisecond
			k.start()
			id := k.submit("script", script("echo $$; exec sleep 1000"))
			k.awaitLog(id, "\n")
			pid := k.running(id)
			path := filepath.Join(k.dir, strings.ReplaceAll(folder, "DAY", id.Day()))
			aside := filepath.Join(t.TempDir(), "aside")
			must(t, os.Rename(path, aside))
			if !ends {
				k.poll("a submit is accepted and ends", func() bool {
					def := k.catalog.Get("test", "script")
					bound, err := def.BindJSON([]byte(script("echo here")))
					must(t, err)
					rec, err := publish(k.tree, statefs.Submission{
						Group: def.Group, Job: def.Name, Params: bound.JSON(), Definition: def.Source(), DefinitionHash: def.Hash(),
					})
					if err != nil {
						return false // until the next sweep
					}
					k.poll("it ends", func() bool {
						rec, err := k.tree.ReadRecord(rec.ID)
						return err == nil && rec.Status == statefs.Completed
					})
					return true
				})
				return
			}
			err := <-k.ended
			k.daemon = nil
			if _, ok := errors.AsType[*statefs.FolderGoneError](err); !ok || !strings.Contains(err.Error(), path) {
				t.Errorf("the daemon ended with %v", err)
			}
			if !lives(pid) {
				t.Error("the running command ended with the daemon")
			}
			must(t, k.pool.Close())
			must(t, os.Rename(aside, path))
			k.start()
			k.awaitState(id, statefs.Running)
			if k.running(id) != pid {
				t.Error("the next daemon has not found the command")
			}
		})
	}
}
