package api

import "github.com/jobdir/jobdir/statefs"

// Outbox is a page of the deliveries that are not done, and a summary of all of them.
type Outbox struct {
	// Entries is the page, the oldest first; Total is how many match in all.
	Entries    []statefs.OutboxItem `json:"entries"`
	Count      int                  `json:"count"`
	Total      int                  `json:"total"`
	TotalExact bool                 `json:"total_exact"`
	// Next is the cursor of the following page; nil on the last one.
	Next *string `json:"next"`
	statefs.OutboxStatus
	// OldestSeconds is the age of the oldest pending entry of all, 0 without entries.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// DeliveryAnswer is the answer to a retry or drop of deliveries.
type DeliveryAnswer struct {
	Success bool                   `json:"success"`
	ID      statefs.ID             `json:"id"`
	Action  statefs.DeliveryAction `json:"action"`
	Message string                 `json:"message"`
	// Entries are the affected entries with their current status.
	Entries []DeliveryAnswerEntry `json:"entries"`
	// Pending means that the request is not carried out yet or, after a wait, that an entry was not attempted.
	Pending bool `json:"pending,omitempty"`
}

// DeliveryAnswerEntry is the status of an outbox entry after a request.
type DeliveryAnswerEntry struct {
	Entry  string                 `json:"entry"`
	Status statefs.DeliveryStatus `json:"status"`
	// Tried is set after a wait: whether the entry was attempted since the request. Error is why the attempt failed.
	Tried *bool  `json:"tried,omitempty"`
	Error string `json:"error,omitempty"`
}

// BulkDeliveriesRequest asks for an action on the deliveries that match a filter.
type BulkDeliveriesRequest[Filter any] struct {
	Action statefs.DeliveryAction `json:"action"`
	// By is the requester, unless the connection names one.
	By string `json:"by"`
	// DryRun asks only for the number of matching entries and a sample.
	DryRun bool `json:"dry_run"`
	// Filter has the parameters of a list of deliveries, each with a text or a list of texts; a drop needs one.
	Filter Filter `json:"filter"`
	// Next is the member of the answer before.
	Next   string `json:"next,omitempty"`
	Reason string `json:"reason"`
}

// BulkDeliveries is the result of an action on the deliveries that match a filter.
type BulkDeliveries struct {
	Action statefs.DeliveryAction `json:"action"`
	DryRun bool                   `json:"dry_run"`
	// Total is how many match. Entries that earlier calls changed count only if they still match.
	Total int `json:"total"`
	// Entries is a sample of the matching entries, in a dry run.
	Entries []string `json:"entries,omitempty"`
	// Done is how many were retried or dropped, and Failures are the unchanged entries, and why.
	Done     int               `json:"done"`
	Failures []DeliveryFailure `json:"failures"`
	// Next continues after the entries of this call; nil when there are no more.
	Next *string `json:"next"`
}

// DeliveryFailure is an unchanged entry, and why.
type DeliveryFailure struct {
	Entry string `json:"entry"`
	Error string `json:"error"`
}
