package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// DeliveryAction is the kind of a request for an entry of the outbox. Its file is beside the entry:
// outbox/ID.1-webhook.retry_requested.
type DeliveryAction string

// The delivery actions.
const (
	RetryDelivery DeliveryAction = "retry" // retry it at once, even if it waits for a person
	DropDelivery  DeliveryAction = "drop"  // give it up
)

// DeliveryActions returns the delivery actions. A drop takes precedence over a retry.
func DeliveryActions() []DeliveryAction { return []DeliveryAction{DropDelivery, RetryDelivery} }

func (n EntryName) requestFile(ask DeliveryAction) string {
	return n.file("." + string(ask) + requestSuffix)
}

// ParseEntry parses the name of an entry in the form of String: ID.1-webhook.
func ParseEntry(text string) (EntryName, bool) {
	name, _, err := ParseEntryName(text + entryPending)
	return name, err == nil
}

// ParseDeliveryRequest parses the name of a request file of outbox/.
func ParseDeliveryRequest(file string) (name EntryName, ask DeliveryAction, ok bool) {
	for _, ask := range DeliveryActions() {
		if head, is := strings.CutSuffix(file, "."+string(ask)+requestSuffix); is {
			name, ok := ParseEntry(head)
			return name, ask, ok
		}
	}
	return name, "", false
}

// Request creates a request for an entry, removes the opposite one, and returns when that
// is durable. args holds the requester and the reason.
func (o *Outbox) Request(name EntryName, ask DeliveryAction, args Args) error {
	line, err := args.JSON()
	if err == nil {
		err = o.files.Replace(name.requestFile(ask), formatStamp(o.options.Now(), line), false)
	}
	if err != nil {
		return fmt.Errorf("ask for a %s of %s: %w", ask, name, err)
	}
	for _, other := range DeliveryActions() {
		if other == ask {
			continue
		}
		if err := o.root.Remove(name.requestFile(other)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ask for a %s of %s: %w", ask, name, err)
		}
	}
	return o.syncFolder(outboxDir)
}

// Requested is a pending request for an entry.
type DeliveryRequest struct {
	Action DeliveryAction
	At     time.Time
	// By is the requester: the name in the file, or else its owner; "" if unknown. Reason is the
	// reason.
	By, Reason string

	file string
	info fs.FileInfo
}

// Requested returns the pending request for an entry; false if there is none.
func (o *OwnerOutbox) Requested(name EntryName) (DeliveryRequest, bool, error) {
	for _, ask := range DeliveryActions() {
		a := DeliveryRequest{Action: ask, file: name.requestFile(ask)}
		var err error
		if a.info, err = o.root.Lstat(a.file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return a, false, fmt.Errorf("look at %s: %w", a.file, err)
		}
		if !a.info.Mode().IsRegular() {
			continue
		}
		stamp, err := o.requestStamp(o.root, a.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was withdrawn
		}
		if err != nil {
			return a, false, err
		}
		a.At, a.By = stamp.At, ownerName(o.root, a.file)
		if args, err := ParseArgs(stamp.Args); err == nil { // otherwise the name is enough
			a.By, a.Reason = args.Requester(a.By), args.Reason
		}
		return a, true, nil
	}
	return DeliveryRequest{}, false, nil
}

// DropRequest removes a request whose effect is durable, or that has none. A newer request
// of the same name stays.
func (o *OwnerOutbox) DropRequest(a DeliveryRequest) error {
	now, err := o.root.Lstat(a.file)
	if err == nil && os.SameFile(a.info, now) && now.ModTime().Equal(a.info.ModTime()) {
		err = o.root.Remove(a.file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the request %s: %w", path.Base(a.file), err)
	}
	return nil
}
