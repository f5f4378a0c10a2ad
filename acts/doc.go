// Package acts says what a person may do about the steps of an operation, and what is wrong with a request that asks for something else.
//
//	HTTP, command line ──▶ Check ──▶ request file ──▶ daemon ──▶ Check again ──▶ record
//	       a person, touch or echo ──────────▲
//
// A request is checked where it is made, so that whoever makes it hears what is wrong, and again where it is carried out: a file may hold
// anything, and the operation may have gone on meanwhile. Both ask [Check], which reads nothing and changes nothing.
package acts
