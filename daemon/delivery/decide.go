package delivery

import "github.com/jobdir/jobdir/statefs"

// look is what is seen of an entry at one time.
type look struct {
	has, manual bool                   // its file is there; and waits for a person
	asked, drop bool                   // a person has made a request; and it is to give up
	known       bool                   // the memory has it
	ended       bool                   // its record is terminal
	notFound    bool                   // its record does not exist
	state       statefs.DeliveryStatus // in the record; "" if the record has no delivery there
	otherKind   bool                   // the delivery there has another kind
}

// isOpen reports whether a delivery with this status is still owed.
func isOpen(s statefs.DeliveryStatus) bool {
	return s == statefs.DeliveryPending || s == statefs.DeliveryManual
}

// action is what is to be done about an entry.
type action uint8

const (
	ignore        action = iota // nothing but to drop the request
	setAside                    // to corrupt/
	remove                      // its outcome is in the record
	forget                      // nothing is owed
	giveUp                      // because a person asked for it
	giveUpRemoved               // because a person removed its file
	retryAsked                  // because a person asked for it
	retryMoved                  // because a person moved it back to pending
	holdMoved                   // because a person moved it to failed_manual
	keepHeld                    // it waits for a person
	keep                        // it waits for its next try
)

// decide says what is to be done about an entry. The files are the authority on what a person wants, and the record
// on what has become of the delivery.
func decide(s look) action {
	switch {
	case s.notFound:
		return setAside
	case !s.ended:
		return ignore // its end may be about to be written
	case s.has && (!isOpen(s.state) || s.otherKind):
		return remove // the operation's run is no criterion: optional steps have later runs
	case !isOpen(s.state):
		return forget
	case s.drop:
		return giveUp
	case s.asked && s.has:
		return retryAsked
	case s.has && !s.manual && s.state == statefs.DeliveryManual:
		return retryMoved
	case s.has && s.manual && s.state == statefs.DeliveryPending:
		return holdMoved
	case s.has && s.manual:
		return keepHeld
	case s.has:
		return keep
	case s.known:
		return giveUpRemoved
	}
	return ignore
}
