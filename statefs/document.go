package statefs

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// A record may have been written by another version of jobdir, or hold what somebody added. What this version does not know it
// keeps: such members are read into Record.Extra and written behind the others.

// knownMembers are the names of the members that a Record has fields for.
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
		if knownMembers[strings.ToLower(name)] { // encoding/json knows them in any letter case
			continue
		}
		if rec.Extra == nil {
			rec.Extra = make(map[string]json.RawMessage)
		}
		rec.Extra[name] = value
	}
	return rec, nil
}

// Document is the record as it stands in its file.
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
