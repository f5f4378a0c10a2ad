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

// DeliveryAsk is what a person asks of an entry of the outbox, by a file beside it: outbox/ID.1-webhook.retry_requested.
type DeliveryAsk string

// What can be asked of an entry.
const (
	RetryDelivery DeliveryAsk = "retry" // try it at once, also one that waits for a person
	DropDelivery  DeliveryAsk = "drop"  // give it up
)

// DeliveryAsks lists them. A drop beats a retry.
func DeliveryAsks() []DeliveryAsk { return []DeliveryAsk{DropDelivery, RetryDelivery} }

func (n EntryName) askFile(ask DeliveryAsk) string { return n.file("." + string(ask) + requestSuffix) }

// ParseEntry reads the name of an entry as String gives it: ID.1-webhook.
func ParseEntry(text string) (EntryName, bool) {
	name, _, err := ParseEntryName(text + entryPending)
	return name, err == nil
}

// ParseDeliveryAsk reads the name of a file of outbox/ that asks for something.
func ParseDeliveryAsk(file string) (name EntryName, ask DeliveryAsk, ok bool) {
	for _, ask := range DeliveryAsks() {
		if head, is := strings.CutSuffix(file, "."+string(ask)+requestSuffix); is {
			name, ok := ParseEntry(head)
			return name, ask, ok
		}
	}
	return name, "", false
}

// AskDelivery asks for something of an entry: it puts the file there in place of its opposite, and returns when that is durable. Who asks, and why, are
// of args.
func (t *Tree) AskDelivery(name EntryName, ask DeliveryAsk, args Args) error {
	line, err := args.JSON()
	if err == nil {
		err = t.files.replace(name.askFile(ask), formatStamp(t.options.Now(), line), false)
	}
	if err != nil {
		return fmt.Errorf("ask for a %s of %s: %w", ask, name, err)
	}
	for _, other := range DeliveryAsks() {
		if other == ask {
			continue
		}
		if err := t.root.Remove(name.askFile(other)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ask for a %s of %s: %w", ask, name, err)
		}
	}
	folder, err := openSyncFolder(t.OutboxDir(), t.options.Durability)
	if err != nil {
		return fmt.Errorf("ask for a %s of %s: %w", ask, name, err)
	}
	err = folder.sync()
	_ = folder.close() // opened for reading
	return err
}

// AskedDelivery is what somebody asks of an entry.
type AskedDelivery struct {
	Ask DeliveryAsk
	At  time.Time
	// By is who asks, as the file says or else by the name of its owner; "" when nobody knows. Reason is why.
	By, Reason string

	file string
	info fs.FileInfo
}

// AskedDelivery returns what is asked of an entry; false when nothing is.
func (o *Owner) AskedDelivery(name EntryName) (AskedDelivery, bool, error) {
	for _, ask := range DeliveryAsks() {
		a := AskedDelivery{Ask: ask, file: name.askFile(ask)}
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
			continue // it was taken back
		}
		if err != nil {
			return a, false, err
		}
		a.At, a.By = stamp.At, ownerName(o.root, a.file)
		if args, err := ParseArgs(stamp.Args); err == nil { // otherwise the name says enough
			a.By, a.Reason = args.Asker(a.By), args.Reason
		}
		return a, true, nil
	}
	return AskedDelivery{}, false, nil
}

// Answered removes what was asked: its effect is durable, or it has none. One that was asked again since stays.
func (o *Owner) Answered(a AskedDelivery) error {
	now, err := o.root.Lstat(a.file)
	if err == nil && os.SameFile(a.info, now) && now.ModTime().Equal(a.info.ModTime()) {
		err = o.root.Remove(a.file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the request %s: %w", path.Base(a.file), err)
	}
	return nil
}
