package statefs

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// A record may come from another version of jobdir or contain members that a person added. Unknown
// members are kept: they are read into Record.Extra and written after the known ones.

// knownMembers are the lower-case JSON names of the fields of Record.
var knownMembers = func() map[string]bool {
	known := make(map[string]bool)
	for field := range reflect.TypeFor[Record]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			known[strings.ToLower(name)] = true
		}
	}
	return known
}()

func unmarshalRecord(data []byte) (*Record, error) {
	rec := new(Record)
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(rec); err == nil && len(bytes.TrimSpace(data[strict.InputOffset():])) == 0 {
		return rec, nil
	}
	rec = new(Record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	for name, value := range members {
		if knownMembers[strings.ToLower(name)] { // encoding/json matches names in any letter case
			continue
		}
		if rec.Extra == nil {
			rec.Extra = make(map[string]json.RawMessage)
		}
		rec.Extra[name] = value
	}
	return rec, nil
}

// Document returns the record as JSON, as written to its file.
func (r *Record) Document() ([]byte, error) { return marshalRecord(r) }

func marshalRecord(rec *Record) ([]byte, error) {
	data, err := json.Marshal(rec)
	if err != nil || len(rec.Extra) == 0 {
		return data, err
	}
	extra, err := json.Marshal(rec.Extra)
	if err != nil {
		return nil, err
	}
	return append(append(data[:len(data)-1], ','), extra[1:]...), nil
}
