package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// report is what the person who watches sees: lines, progress and at the end a result. Safe for concurrent use.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	progress string // the file for progress, "" for none
	hide     *strings.Replacer
	stored   int
	warned   bool
}

// left counts the entries that were not stored, by the reason.
type left struct {
	Incomplete int `json:"incomplete"` // without a prediction
	Missing    int `json:"missing"`    // without a document in the outbox
	Refused    int `json:"refused"`
}

// some reports whether a person has to see to any of them.
func (l left) some() bool { return l.Missing+l.Refused > 0 }

func newReport(out io.Writer, progress string, secrets []string) *report {
	var pairs []string
	for _, secret := range secrets {
		if secret != "" {
			pairs = append(pairs, secret, "***")
		}
	}
	return &report{out: out, progress: progress, hide: strings.NewReplacer(pairs...)}
}

// line writes one line, in one write, without the secrets.
func (r *report) line(format string, args ...any) {
	text := strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n", " ")
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.WriteString(r.out, r.hide.Replace(text)+"\n") // the reader may be gone
}

// phase says how far it is, and what it does now.
func (r *report) phase(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress == "" {
		return
	}
	// A file that only grows would be large after a month: it is written anew.
	if err := os.WriteFile(r.progress, fmt.Appendf(nil, "%d - %s\n", r.stored, phase), 0o600); err != nil && !r.warned {
		r.warned = true
		fmt.Fprintf(r.out, "Progress cannot be shown: %v\n", err)
	}
}

// end writes the result as a line, and as an object into a file when there is one to be written.
func (r *report) end(path string, rest left) {
	r.line("%d stored, %d without a prediction, %d without a document in the outbox, %d refused.", r.stored,
		rest.Incomplete, rest.Missing, rest.Refused)
	if path == "" {
		return
	}
	text, err := json.Marshal(struct {
		Stored int `json:"stored"`
		left
	}{r.stored, rest})
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		r.line("The result cannot be written: %v", err)
	}
}
