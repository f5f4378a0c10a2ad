// Package acts defines which requests a person may make about the steps of an operation, and explains why any
// other request is refused.
//
//	HTTP, command line ──▶ Check ──▶ request file ──▶ daemon ──▶ Check again ──▶ record
//	       a person, touch or echo ──────────▲
//
// A request is checked twice: where it is made, so that the requester gets the error, and where it is carried
// out, because a file may contain anything and the operation may have changed since. Both use [Check], which
// reads no files and changes nothing.
package acts
