package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDecisionsAreNumbered: the decision records are counted without a gap, and each says its number.
func TestDecisionsAreNumbered(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/adr/*") // in the order of their names
	if err != nil || len(pages) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	for i, page := range pages {
		if name := filepath.Base(page); !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)) {
			t.Errorf("docs/adr/%s: number %d should be here", name, i+1)
		}
		if head, _, _ := strings.Cut(read(t, page), "\n"); !strings.HasPrefix(head, fmt.Sprintf("# %d. ", i+1)) {
			t.Errorf("%s begins with %q, not with its number %d", page, head, i+1)
		}
	}
}

// TestLinksBetweenPagesLead: a link from one page to a file of the tree leads to it and to its heading, and "ADR 7"
// leads to decision 7.
func TestLinksBetweenPagesLead(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\[([^\]]*)\]\(([^)#: ]*)(?:#([^)]*))?\)`)
	decision := regexp.MustCompile(`^ADR (\d+)$`)
	seen := 0
	for _, name := range tracked(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			seen++
			target := path.Join(path.Dir(name), m[2])
			if m[2] == "" {
				target = name
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[0])
			} else if m[3] != "" && !slices.Contains(anchors(read(t, target)), m[3]) {
				t.Errorf("%s: %s has no heading for the link %s", name, target, m[0])
			}
			if n := decision.FindStringSubmatch(m[1]); n != nil && !strings.HasPrefix(path.Base(target),
				strings.Repeat("0", 4-len(n[1]))+n[1]+"-") {
				t.Errorf("%s: the link %s leads to another decision", name, m[0])
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d links were found", seen)
	}
}

// anchors are the names by which links lead to the headings of a page, as GitHub makes them.
func anchors(page string) (names []string) {
	noise := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for i, part := range strings.Split(page, "```") {
		for line := range strings.Lines(part) {
			if title := strings.TrimLeft(line, "#"); i%2 == 0 && title != line && strings.HasPrefix(title, " ") {
				title = strings.ToLower(noise.ReplaceAllString(strings.TrimSpace(title), ""))
				names = append(names, strings.ReplaceAll(title, " ", "-"))
			}
		}
	}
	return names
}

// longestPage is how many lines a page may have: a longer one answers more than one question.
const longestPage = 200

// longPages are the pages that may be longer, with the reason. The list may only shrink.
var longPages = map[string]string{}

// TestPagesAreShort holds that a page fits one question: the README, the guide for contributors and everything in
// docs/, generated tables and decisions included.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range tracked(t) {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" ||
			path.Dir(name) != "." && !strings.HasPrefix(name, "docs/") {
			continue
		}
		_, known := longPages[name]
		switch lines := strings.Count(read(t, name), "\n"); {
		case lines > longestPage && !known:
			t.Errorf("%s has %d lines, more than %d: give one of its questions a page of its own", name, lines,
				longestPage)
		case lines <= longestPage && known:
			t.Errorf("%s has %d lines: take it out of longPages", name, lines)
		}
	}
}
