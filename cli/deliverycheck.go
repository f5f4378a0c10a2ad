package cli

import (
	"fmt"
	"net/netip"
	"net/url"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// deliveryCheck returns a check that refuses delivery targets which a daemon with these settings would
// refuse, as far as that is known before a delivery.
func deliveryCheck(storage string, allow []netip.Prefix) func(*catalog.Delivery) error {
	return func(d *catalog.Delivery) error {
		switch {
		case d.Folder != nil && outbox.Inside(d.Folder.Path, storage):
			return fmt.Errorf("the folder %s is part of the storage; deliver to another one", d.Folder.Path)
		case d.Webhook != nil:
			u, err := url.Parse(d.Webhook.URL)
			if err != nil {
				return err
			}
			return outbox.CheckHost(u.Hostname(), allow)
		}
		return nil
	}
}

// allowed parses the addresses that webhooks may connect to.
func (l *loaded) allowed() (allow []netip.Prefix, err error) {
	for _, text := range l.WebhookAllow {
		prefix, err := outbox.ParseAllow(text)
		if err != nil {
			return nil, err
		}
		allow = append(allow, prefix)
	}
	return allow, nil
}
