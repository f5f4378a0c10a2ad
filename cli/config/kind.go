package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/term"
)

// kind is how a value is read from text, and written as text.
type kind[T any] struct {
	parse  func(text string) (T, error)
	format func(value T) string
}

var text = kind[string]{
	func(text string) (string, error) { return text, nil },
	func(value string) string { return value },
}

func choice[T ~string](choices ...T) kind[T] {
	return kind[T]{
		func(text string) (T, error) {
			if !slices.Contains(choices, T(text)) {
				return "", fmt.Errorf("%q is not one of %v", text, choices)
			}
			return T(text), nil
		},
		func(value T) string { return string(value) },
	}
}

var toggle = kind[bool]{
	func(text string) (bool, error) {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return false, fmt.Errorf("%q is neither true nor false", text)
		}
		return on, nil
	},
	strconv.FormatBool,
}

var duration = kind[time.Duration]{
	func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("%q is not a time above zero such as 10s or 1m30s", text)
		}
		return d, nil
	},
	time.Duration.String,
}

// durationOrOff is a duration, or off for 0.
var durationOrOff = kind[time.Duration]{
	func(text string) (time.Duration, error) {
		if text == "off" {
			return 0, nil
		}
		return duration.parse(text)
	},
	func(d time.Duration) string {
		if d == 0 {
			return "off"
		}
		return d.String()
	},
}

// age is a time in the units of people, or 0.
var age = kind[time.Duration]{
	func(text string) (time.Duration, error) {
		age, ok := param.ParseDuration(text)
		if !ok && text != "0" {
			return 0, fmt.Errorf("%q is not a time such as 30d or 12h, nor 0", text)
		}
		return age, nil
	},
	func(age time.Duration) string {
		if age == 0 {
			return "0"
		}
		for _, unit := range []struct {
			name string
			is   time.Duration
		}{{"d", term.Day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
			if age > 0 && age%unit.is == 0 {
				return strconv.FormatInt(int64(age/unit.is), 10) + unit.name
			}
		}
		return strconv.FormatInt(age.Milliseconds(), 10) + "ms"
	},
}

var crashWithin = kind[time.Duration]{
	func(text string) (time.Duration, error) {
		d, ok := param.ParseDuration(text)
		if !ok || d < 1 || d > catalog.MaxCrashWithin {
			return 0, fmt.Errorf("%q is not a time such as 10m, at most %dd", text, int(catalog.MaxCrashWithin/term.Day))
		}
		return d, nil
	},
	age.format,
}

var size = kind[int64]{
	func(text string) (int64, error) {
		size, ok := param.ParseBytes(text)
		if !ok && text != "0" {
			return 0, fmt.Errorf("%q is not an amount of bytes such as 20GiB, nor 0", text)
		}
		return int64(size), nil
	},
	func(n int64) string { return param.Bytes(n).String() },
}

// count is a number of things, 0 for any.
var count = kind[int]{
	func(text string) (int, error) {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
		return int(n), nil
	},
	strconv.Itoa,
}

// number is a number of things from 1.
func number(most int) kind[int] {
	return kind[int]{
		func(text string) (int, error) {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > most {
				return 0, fmt.Errorf("%q is not a whole number from 1 to %d", text, most)
			}
			return n, nil
		},
		strconv.Itoa,
	}
}
