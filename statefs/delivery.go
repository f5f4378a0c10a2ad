package statefs

import (
	"slices"
	"time"
)

// DeliveryStatus is the state of a delivery.
type DeliveryStatus string

// The statuses of a delivery.
const (
	DeliveryPending   DeliveryStatus = "pending"       // it is tried until it succeeds
	DeliveryDelivered DeliveryStatus = "delivered"     // the target has it
	DeliveryManual    DeliveryStatus = "failed_manual" // it waits for a person to retry or drop it
	DeliveryDropped   DeliveryStatus = "dropped"       // a person gave it up
)

// Delivery is the outcome of the delivery to one target. The terminal record holds it; the number
// of attempts is in the outbox entry.
type Delivery struct {
	// Place is the position of the target in the job's list, from 1; Kind is that of the target.
	Place int            `json:"target"`
	Kind  string         `json:"kind"`
	Send  string         `json:"send"`
	State DeliveryStatus `json:"status"`
	// Name is the destination at the target: a name below the folder or in the bucket, or a URL
	// without its query, which may hold a secret.
	Name string `json:"name,omitempty"`
	// Error is the reason of failed_manual.
	Error string `json:"error,omitempty"`
	// Output is where the result was delivered, nil before that.
	Output *DeliveryOutput `json:"output,omitempty"`
}

// DeliveryOutput is where a result was delivered.
type DeliveryOutput struct {
	// Location is a path, or a URL without its query.
	Location    string    `json:"location"`
	Bytes       int64     `json:"bytes"`
	SHA256      string    `json:"sha256,omitempty"` // not set for artifacts
	DeliveredAt time.Time `json:"delivered_at"`
	// Bucket, Object and ETag are set for a bucket.
	Bucket string `json:"bucket,omitempty"`
	Object string `json:"object,omitempty"`
	ETag   string `json:"etag,omitempty"`
	// Files is the number of artifacts; Stored lists the first MaxStored of them; Bytes is the size
	// of all.
	Files  int64        `json:"files,omitempty"`
	Stored []StoredFile `json:"stored,omitempty"`
}

// MaxStored is the maximum number of artifacts listed in DeliveryOutput.
const MaxStored = 100

// StoredFile is one artifact at its target.
type StoredFile struct {
	// Artifact is the name in the artifacts folder, Name the name at the target.
	Artifact string `json:"artifact"`
	Name     string `json:"name"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	ETag     string `json:"etag,omitempty"`
}

// Delivery returns the delivery to the target at a position, nil if there is none. It points into
// the record.
func (r *Record) Delivery(place int) *Delivery {
	i := slices.IndexFunc(r.Deliveries, func(d Delivery) bool { return d.Place == place })
	if i < 0 {
		return nil
	}
	return &r.Deliveries[i]
}
