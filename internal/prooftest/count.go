// Package prooftest sets how much the tests that prove a promise do, by the environment variable JOBDIR_TORTURE:
//
//	unset    make test     the short form: some states and a few kills, drawn by a fixed seed or by the clock
//	prove    make prove    what every change must pass before it goes in
//	full     make torture  the counts of docs/reliability.md
//	every    make mutants  the counts of make prove, and every crash state until the first failure
//
// A test that does less in the short form takes its numbers from Count. So `make prove` finds its package, and does
// all of it.
package prooftest

import (
	"fmt"
	"os"
)

// variable is read here and nowhere else in this module.
const variable = "JOBDIR_TORTURE"

type size int

const (
	short size = iota
	long
	full
)

var chosen, everyState = parse(os.Getenv(variable))

func parse(value string) (_ size, everyState bool) {
	switch value {
	case "":
		return short, false
	case "prove":
		return long, false
	case "every":
		return long, true
	case "full":
		return full, true
	}
	panic(fmt.Sprintf("%s=%q: want prove, full, every, or nothing for the short form", variable, value))
}

// Count returns the first value in the short form, the second one in make prove, the third one in the full run.
func Count[T any](inTest, inProve, inTorture T) T {
	return [...]T{short: inTest, long: inProve, full: inTorture}[chosen]
}

// Full reports whether this is the full run.
func Full() bool { return chosen == full }

// EveryState reports whether every crash state is tried, not a sample.
func EveryState() bool { return everyState }
