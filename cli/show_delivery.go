package cli

import (
	"fmt"

	"github.com/jobdir/jobdir/statefs"
)

// deliveryLine describes in one line the state of a delivery and what a person can do.
func deliveryLine(id statefs.ID, d *statefs.Delivery) string {
	text := fmt.Sprintf("%d, %s to %s: %s", d.Place, d.Send, d.Kind, d.State)
	switch o := d.Output; {
	case d.State == statefs.DeliveryManual:
		text += ": " + d.Error + "; fix the cause, then: jobdir outbox retry " + statefs.EntryName{
			ID: id, Place: d.Place,
			Kind: d.Kind,
		}.String()
	case d.State == statefs.DeliveryPending && d.Name != "":
		text += " as " + d.Name
	case o == nil:
	case d.Send == "artifacts":
		text += fmt.Sprintf(": %d files, %d bytes, in %s", o.Files, o.Bytes, o.Location)
	default:
		text += ": " + o.Location
	}
	return text
}
