package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs"
)

// deliverJob is a job with two targets: a folder beside the storage, on the same disk, and one that is never there.
func deliverJob(dir string) string {
	return fmt.Sprintf(`
group: t
name: deliver
handler: count
deliver:
  - folder: {path: %q, key: "out/${id}.json"}
  - folder: {path: /nowhere/jobdir-torture}
`, filepath.Dir(dir))
}

// has says whether a file of the storage has a text in it.
func (s *play) has(elem ...string) bool {
	last := len(elem) - 1
	data, err := os.ReadFile(filepath.Join(s.p.dir, filepath.Join(elem[:last]...)))
	return err == nil && bytes.Contains(data, []byte(elem[last]))
}

// checkDeliveries holds that what has ended is delivered or queued: for each delivery that a record owes there is an entry, and what it
// says was delivered is there as a whole. A daemon that starts on a crash state delivers to the folder of the definition, which is where the
// disk of the play was mounted; before its start that place tells nothing.
func checkDeliveries(dir string, started bool) error {
	files, err := filepath.Glob(filepath.Join(dir, "operations", "*", "t-deliver_*.json"))
	errs := []error{err}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var rec statefs.Record
		if json.Unmarshal(data, &rec) != nil || !rec.Status.Terminal() {
			continue // others judge records
		}
		if rec.Status == statefs.Completed && len(rec.Deliveries) != 2 {
			errs = append(errs, fmt.Errorf("%s is completed and owes %v", rec.ID, rec.Deliveries))
		}
		for _, it := range rec.Deliveries {
			entry := filepath.Join(dir, "outbox", fmt.Sprintf("%s.%d-%s.pending", rec.ID, it.Place, it.Kind))
			if it.State != statefs.DeliveryDelivered {
				if _, err := os.Stat(entry); err != nil {
					errs = append(errs, fmt.Errorf("%s is neither delivered nor queued: %w", rec.ID, err))
				}
				continue
			}
			got, err := os.ReadFile(filepath.Join(filepath.Dir(dir), it.Name))
			if errors.Is(err, fs.ErrNotExist) && started {
				got, err = os.ReadFile(it.Output.Location)
			}
			if err != nil || !bytes.Equal(got, rec.Footer) {
				errs = append(errs, fmt.Errorf("%s says that it was delivered, and there is %q, %w", rec.ID, got, err))
			}
		}
	}
	return errors.Join(errs...)
}
