package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/jobdir/jobdir/statefs"
)

// recordSchema is the published schema of records.
var recordSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	return compiler.Compile("../schema/record.schema.json")
})

// checkRecords validates every record that a test leaves behind, so that each kind of record is
// checked. Invalid records that a test has written itself are not checked.
func (b *bench) checkRecords() {
	schema, err := recordSchema()
	if err != nil {
		b.t.Errorf("schema: %v", err)
		return
	}
	files, err := filepath.Glob(filepath.Join(b.dir, "operations", "*", "*.json"))
	if err != nil {
		b.t.Error(err)
	}
	for _, file := range files {
		id, err := statefs.ParseID(filepath.Base(file[:len(file)-len(".json")]))
		if err != nil {
			continue
		}
		if _, err := b.tree.ReadRecord(id); err != nil {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			b.t.Error(err)
			continue
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			b.t.Errorf("%s does not follow the schema: %v\n%s", file, err, data)
		}
	}
}
