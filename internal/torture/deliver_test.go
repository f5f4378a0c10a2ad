package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jobdir/jobdir/statefs"
)

// deliverJobs are jobs whose targets are folders beside the storage, on the same disk. One of the folders is
// missing until makeLater, and one never exists.
func deliverJobs(dir string) string {
	return strings.ReplaceAll(`
group: t
name: deliver
handler: count
deliver:
  - folder: {path: "BESIDE", key: "out/${id}.json"}
  - folder: {path: /nowhere/jobdir-torture}
---
group: t
name: hands
handler: count
deliver:
  - folder: {path: "BESIDE/later", retry_for: 1ms}
  - folder: {path: /nowhere/jobdir-torture}
---
group: t
name: leaves
handler: leave
deliver:
  - folder: {path: "BESIDE", key: "${id}/${artifact}", send: artifacts}
`, "BESIDE", filepath.Dir(dir))
}

// later is the folder that is missing at first.
const later = "later"

// leftFiles are the files of the job "leaves", each with its own name as its content.
func leftFiles() []string { return []string{"a", "sub/b"} }

// has reports whether a file of the storage contains a text.
func (s *play) has(elem ...string) bool {
	last := len(elem) - 1
	data, err := os.ReadFile(filepath.Join(s.p.dir, filepath.Join(elem[:last]...)))
	return err == nil && bytes.Contains(data, []byte(elem[last]))
}

// delivered waits until a delivery in a record has a state.
func (s *play) delivered(id statefs.ID, state statefs.DeliveryStatus) {
	s.t.Helper()
	until(s.t, id.String()+" is "+string(state), func() bool {
		return s.has("operations", id.Day(), id.String()+".json", fmt.Sprintf("%q", state))
	})
}

// requestDelivery makes a request for a delivery as a person does, with touch, and returns when it is carried
// out.
func (s *play) requestDelivery(id statefs.ID, place int, ask statefs.DeliveryAction) {
	s.t.Helper()
	file := filepath.Join(s.p.dir, "outbox", fmt.Sprintf("%s.%d-folder.%s_requested", id, place, ask))
	sent := s.p.disk.Len()
	must(s.t, os.WriteFile(file, nil, 0o640))
	until(s.t, fmt.Sprintf("the %s is carried out", ask), func() bool {
		_, err := os.Lstat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
	s.note(acknowledgement{
		sent: sent, answered: s.p.disk.Len(), id: id,
		drops: ask == statefs.DropDelivery, delivery: place,
	})
}

// makeLater creates the missing folder, as a person does by mounting a disk.
func (s *play) makeLater() {
	s.t.Helper()
	must(s.t, os.Mkdir(filepath.Join(s.p.at, later), 0o750))
	beside, err := os.Open(s.p.at)
	must(s.t, err)
	must(s.t, beside.Sync())
	must(s.t, beside.Close())
}

// playHands retries one delivery, after creating its missing folder, and drops another.
func playHands(s *play) {
	id := s.submit("hands")
	s.end(id)
	s.delivered(id, statefs.DeliveryManual)
	s.start()
	s.makeLater()
	s.requestDelivery(id, 1, statefs.RetryDelivery)
	s.delivered(id, statefs.DeliveryDelivered)
	s.requestDelivery(id, 2, statefs.DropDelivery)
	s.delivered(id, statefs.DeliveryDropped)
}

// deliveries is the number of deliveries of each job.
var deliveries = map[string]int{"deliver": 2, "hands": 2, "leaves": 1}

// checkDeliveries checks that the deliveries of each finished operation are delivered or queued: each pending
// delivery of a record has an entry, each delivered file is complete, and each dropped delivery was dropped
// by a request. A daemon that starts on a crash state delivers to the folders of the definition, which are
// where the disk of the play was mounted; before its start those folders prove nothing.
func (e *expectations) checkDeliveries(dir string, started bool) error {
	files, err := filepath.Glob(filepath.Join(dir, "operations", "*", "t-*.json"))
	errs := []error{err}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var rec statefs.Record
		if json.Unmarshal(data, &rec) != nil || !rec.Status.Terminal() {
			continue // other checks read the records
		}
		if rec.Status == statefs.Completed && len(rec.Deliveries) != deliveries[rec.Job] {
			errs = append(errs, fmt.Errorf("%s is completed and owes %v", rec.ID, rec.Deliveries))
		}
		for i := range rec.Deliveries {
			if err := e.checkDelivery(dir, &rec, &rec.Deliveries[i], started); err != nil {
				errs = append(errs, fmt.Errorf("%s, target %d: %w", rec.ID, rec.Deliveries[i].Place, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (e *expectations) checkDelivery(dir string, rec *statefs.Record, it *statefs.Delivery, started bool) error {
	op := e.ops[rec.ID]
	if op != nil && op.dropped[it.Place] && it.State != statefs.DeliveryDropped {
		return fmt.Errorf("it was dropped, and is %s", it.State)
	}
	switch it.State {
	case statefs.DeliveryDropped:
		if op == nil || !op.dropping[it.Place] {
			return errors.New("it is dropped, and nobody asked for that")
		}
		return nil
	case statefs.DeliveryDelivered:
		return checkDelivered(dir, rec, it, started)
	case statefs.DeliveryPending, statefs.DeliveryManual:
	}
	found, err := filepath.Glob(filepath.Join(dir, "outbox", fmt.Sprintf("%s.%d-%s.[pf]*", rec.ID, it.Place, it.Kind)))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("it is %s and neither delivered nor queued, %w", it.State, err)
	}
	if it.Send != "artifacts" {
		return nil
	}
	return checkLeftFiles(filepath.Join(dir, "operations", rec.ID.Day(), rec.ID.String()+".artifacts"))
}

// checkDelivered compares the file at a target with the expected content.
func checkDelivered(dir string, rec *statefs.Record, it *statefs.Delivery, started bool) error {
	beside := filepath.Dir(dir)
	if it.Send == "artifacts" {
		err := checkLeftFiles(beside, rec.ID.String())
		if err != nil && started {
			err = checkLeftFiles(it.Output.Location, rec.ID.String())
		}
		return err
	}
	if rec.Job == "hands" {
		beside = filepath.Join(beside, later)
	}
	got, err := os.ReadFile(filepath.Join(beside, it.Name))
	if errors.Is(err, fs.ErrNotExist) && started {
		got, err = os.ReadFile(it.Output.Location)
	}
	if err != nil || !bytes.Equal(got, rec.Footer) {
		return fmt.Errorf("it says that it was delivered, and there is %q, %w", got, err)
	}
	return nil
}

func checkLeftFiles(elem ...string) error {
	for _, name := range leftFiles() {
		if got, err := os.ReadFile(filepath.Join(filepath.Join(elem...), name)); err != nil || string(got) != name {
			return fmt.Errorf("what it left is %q, %w", got, err)
		}
	}
	return nil
}
