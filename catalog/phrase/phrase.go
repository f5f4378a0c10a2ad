// Package phrase makes the words of messages: what a misspelt word may have meant, what would have been right, and text
// from outside, cut to a readable length.
package phrase

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DidYouMean gives the hint for a misspelt word: the candidate that takes the fewest edits, at most one for each three
// characters, and of several the first. It is "" when no candidate is near.
func DidYouMean(word string, candidates []string) string {
	const longest = 64 // a longer word is no misspelling of any of ours
	if len(word) > longest {
		return ""
	}
	word = strings.ToLower(word)
	best, bestEdits := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if e := edits(word, strings.ToLower(c)); e < bestEdits {
			best, bestEdits = c, e
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// edits counts insertions, deletions, replacements and swaps of two neighbours.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// OneOf lists what would have been right: "any, all or never".
func OneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Allowed is the hint for a word that must come from a fixed list.
func Allowed(word string, words []string) string {
	if hint := DidYouMean(word, words); hint != "" && !slices.Contains(words, word) {
		return hint
	}
	return "it is " + OneOf(words)
}

// Clip shortens text from outside before it goes into a message.
func Clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

// Quote puts text from outside into a message: single quotes, control characters
// escaped, cut to a readable length.
func Quote(s string) string {
	q := strconv.Quote(Clip(s))
	return "'" + strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`) + "'"
}

// OneLine is the first line of text from outside, shortened.
func OneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return Clip(s)
}
