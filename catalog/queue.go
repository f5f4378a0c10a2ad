package catalog

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 512

// KeyOrder is the order in which operations with the same key start.
type KeyOrder string

// The values of key_order. With the first two, an operation that cannot start yet holds up those behind it.
const (
	KeyBySubmit   KeyOrder = "submit"   // in the order in which they were submitted (default)
	KeyByPriority KeyOrder = "priority" // the highest priority first, then as submitted
	KeyAnyOrder   KeyOrder = "any"      // the earliest submitted operation that can start
)

// OnHit decides what a submit gets if an equal operation exists already.
type OnHit string

// The values of unique.on_hit.
const (
	HitReturn OnHit = "return" // that operation (default)
	HitReject OnHit = "reject" // a refusal that names it
	HitNext   OnHit = "next"   // while it runs one further operation, which waits; then that one
	HitOff    OnHit = "off"    // a new operation each time
)

// Unique decides at submit whether an equal operation is already there.
type Unique struct {
	OnHit OnHit
	// By are the parameters that make operations equal, in the order of the file; nil: all of them.
	By []string
}
