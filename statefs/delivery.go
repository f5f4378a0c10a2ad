package statefs

import (
	"slices"
	"time"
)

// DeliveryStatus says how far a delivery is.
type DeliveryStatus string

// The statuses of a delivery.
const (
	DeliveryPending   DeliveryStatus = "pending"       // it is tried until it succeeds
	DeliveryDelivered DeliveryStatus = "delivered"     // the target has it
	DeliveryManual    DeliveryStatus = "failed_manual" // a person must act: retry or drop it
	DeliveryDropped   DeliveryStatus = "dropped"       // a person did not want it any more
)

// Delivery is what becomes of the result at one target. It stands in the terminal record, which says what is to be delivered; how
// often it was tried is in the entry of the outbox.
type Delivery struct {
	// Place is the place of the target in the job's list, from 1, and Kind what it is: folder, webhook or s3.
	Place int            `json:"target"`
	Kind  string         `json:"kind"`
	Send  string         `json:"send"`
	State DeliveryStatus `json:"status"`
	// Name is where at the target it goes: a name below the folder or in the bucket, or an address without its query, which may be a secret.
	Name string `json:"name,omitempty"`
	// Error says why it is failed_manual.
	Error string `json:"error,omitempty"`
	// Output says where it is, once it was delivered.
	Output *DeliveryOutput `json:"output,omitempty"`
}

// DeliveryOutput says where a result was delivered.
type DeliveryOutput struct {
	// Location is a path or an address, the latter without its query.
	Location    string    `json:"location"`
	Bytes       int64     `json:"bytes"`
	SHA256      string    `json:"sha256,omitempty"` // not of artifacts
	DeliveredAt time.Time `json:"delivered_at"`
	// Bucket, Object and ETag are of what is in a bucket.
	Bucket string `json:"bucket,omitempty"`
	Object string `json:"object,omitempty"`
	ETag   string `json:"etag,omitempty"`
	// Files is how many artifacts there were, and Stored says where the first of them are; Bytes is of all.
	Files  int64        `json:"files,omitempty"`
	Stored []StoredFile `json:"stored,omitempty"`
}

// MaxStored is how many artifacts DeliveryOutput names.
const MaxStored = 100

// StoredFile is one artifact at its target.
type StoredFile struct {
	// Artifact is its name in the folder of artifacts, Name the one it has at the target.
	Artifact string `json:"artifact"`
	Name     string `json:"name"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	ETag     string `json:"etag,omitempty"`
}

// Delivery returns the delivery to the target at a place, nil when there is none. It points into the record.
func (r *Record) Delivery(place int) *Delivery {
	i := slices.IndexFunc(r.Deliveries, func(d Delivery) bool { return d.Place == place })
	if i < 0 {
		return nil
	}
	return &r.Deliveries[i]
}
