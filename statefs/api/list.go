package api

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Cursor is where the next page begins, null on the last one. The server encodes a pointer; a client decodes a string,
// for which null is "".
type Cursor interface{ string | *string }

// Page is a page of a list of operations. Each Row is an Operation or, of an ended one, an Ended.
type Page[Row any, Next Cursor] struct {
	// Count is the number of Operations.
	Count int `json:"count"`
	// Next is the value of the parameter next for the following page.
	Next       Next  `json:"next"`
	Operations []Row `json:"operations"`
	// Total is how many match in all; a lower bound when TotalExact is false.
	Total      int  `json:"total"`
	TotalExact bool `json:"total_exact"`
}

// Finished is a part of the completion feed. Each Row is an Ended.
type Finished[Row any] struct {
	// Count is the number of ends.
	Count    int   `json:"count"`
	Finished []Row `json:"finished"`
	// Last is the number to continue after.
	Last uint64 `json:"last"`
}

// BulkRequest asks for an action on all operations that match a filter, or on the given ones. The server decodes Filter
// and ID as text, so that a refusal can name what is wrong.
type BulkRequest[Filter, ID any] struct {
	// Action is pause, resume, cancel, retry or delete.
	Action string `json:"action"`
	// DryRun asks only for the number of matching operations and a sample.
	DryRun bool `json:"dry_run"`
	// Filter has the parameters of a list of operations, each with a text or a list of texts.
	Filter Filter `json:"filter,omitzero"`
	// IDs selects operations instead of Filter, at most a thousand.
	IDs []ID `json:"ids,omitzero"`
	// Next is the member of the answer before, "" at first.
	Next string `json:"next"`
}

// Bulk is the result of an action on many operations.
type Bulk[Next Cursor] struct {
	Action string `json:"action"`
	DryRun bool   `json:"dry_run"`
	// Total is how many match, in this call and after it; a lower bound when TotalExact is false.
	Total      int  `json:"total"`
	TotalExact bool `json:"total_exact"`
	// At is the time of the query. Passed back as the filter's until, it excludes operations submitted later.
	At time.Time `json:"at"`
	// Operations is a sample of the matching operations, in a dry run.
	Operations []statefs.ID  `json:"operations,omitempty"`
	Done       int           `json:"done"`
	Failures   []BulkFailure `json:"failures"`
	// Next is passed to the next call to continue.
	Next Next `json:"next"`
}

// BulkFailure is an operation that a bulk action left unchanged, and why.
type BulkFailure struct {
	ID statefs.ID `json:"id"`
	// Status is the HTTP status that the action on this operation alone would have had.
	Status int    `json:"status"`
	Error  string `json:"error"`
}

// Swept is the result of a sweep.
type Swept struct {
	// Count is the number of Findings.
	Count    int               `json:"count"`
	DryRun   bool              `json:"dry_run"`
	Findings []statefs.Finding `json:"findings"`
}

// GroupRow is a live operation in the list of its group.
type GroupRow struct {
	ID      statefs.ID    `json:"operation_id"`
	State   statefs.State `json:"state"`
	Foreign bool          `json:"foreign,omitempty"`
}

// Pinned is the answer to a pin.
type Pinned struct {
	// Success is always true: a pin that fails is answered with a problem.
	Success bool       `json:"success"`
	ID      statefs.ID `json:"id"`
	Pinned  bool       `json:"pinned"`
}
