package client_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs/api"
)

// TestOperationIsASelectionOfTheWire: the server encodes each member that a client decodes, with the same
// type.
func TestOperationIsASelectionOfTheWire(t *testing.T) {
	t.Parallel()
	sent := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[api.Operation]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, outer := sent[name]; !outer || len(field.Index) == 1 {
			sent[name] = field.Type
		}
	}
	for field := range reflect.TypeFor[client.Operation]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" && sent[name] != field.Type {
			t.Errorf("member %s of client.Operation is a %s; the server sends a %v", name, field.Type, sent[name])
		}
	}
}
