package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/jobdir/jobdir/catalog/phrase"
)

// glob is a pattern ready to be walked. The library matches whole paths; the walk
// is ours, because io/fs cannot hold file names that are not UTF-8 and because
// folders that cannot match are not to be entered.
type glob struct {
	base      string   // folder before the first special character, as written
	prefix    string   // the part before a name: base and a slash, or nothing
	pattern   string   // the rest
	segments  []string // of pattern
	firstDeep int      // number of the first segment that spans folders
}

// maxAlternatives bounds what the braces of one pattern multiply to.
const maxAlternatives = 1024

func parseGlob(pattern string) (*glob, error) {
	if !doublestar.ValidatePattern(pattern) || pattern == "" {
		return nil, fmt.Errorf("glob %q is not a valid pattern", pattern)
	}
	if alternatives(pattern) > maxAlternatives {
		return nil, fmt.Errorf("glob %q has more than %d alternatives in braces", phrase.Clip(pattern), maxAlternatives)
	}
	base, rest := doublestar.SplitPattern(pattern)
	g := &glob{base: base}
	for _, s := range splitSegments(rest) {
		switch s {
		case "", ".":
		case "..":
			return nil, fmt.Errorf("glob %q has .. after a wildcard", pattern)
		default:
			g.segments = append(g.segments, s)
		}
	}
	if len(g.segments) == 0 || strings.HasSuffix(pattern, "/") {
		return nil, fmt.Errorf("glob %q names a folder, not files (write %q for every file below it)", pattern,
			strings.TrimRight(pattern, "/")+"/**")
	}
	g.pattern = strings.Join(g.segments, "/")
	deep := func(s string) bool { return s == "**" || strings.Contains(s, "/") }
	if g.firstDeep = slices.IndexFunc(g.segments, deep); g.firstDeep < 0 {
		g.firstDeep = len(g.segments)
	}
	if clean := filepath.Clean(base); clean != "." {
		g.prefix = strings.TrimRight(clean, "/") + "/"
	}
	if strings.HasPrefix(pattern, "./") {
		// Kept, because it is what saves a name that begins with "-".
		g.prefix = "./" + g.prefix
	}
	return g, nil
}

// splitSegments cuts a pattern at its slashes, but not inside braces.
func splitSegments(pattern string) []string {
	var out []string
	depth, start := 0, 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth = max(0, depth-1)
		case '/':
			if depth == 0 {
				out = append(out, pattern[start:i])
				start = i + 1
			}
		}
	}
	return append(out, pattern[start:])
}

// alternatives returns an upper estimate of how many plain patterns the braces expand to.
func alternatives(pattern string) int {
	total, open := 1, []int(nil)
	for i := 0; i < len(pattern) && total <= maxAlternatives; i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '{':
			open = append(open, 1)
		case c == ',' && len(open) > 0:
			open[len(open)-1]++
		case c == '}' && len(open) > 0:
			total *= open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	return total
}

// enters reports whether the folder at depth (0 below base) can contain matches. A dot folder is entered only
// if a segment of the pattern begins with a dot.
func (g *glob) enters(name string, depth int) bool {
	if depth < g.firstDeep {
		if depth == len(g.segments)-1 {
			return false
		}
		s := g.segments[depth]
		return (name[0] != '.' || namesDot(s)) && matches(s, name)
	}
	if name[0] != '.' {
		return true
	}
	return slices.ContainsFunc(g.segments[g.firstDeep:], func(s string) bool {
		return namesDot(s) && (strings.Contains(s, "/") || matches(s, name))
	})
}

func namesDot(segment string) bool {
	within := func(lead string) bool { return strings.Contains(segment, lead) }
	return segment[0] == '.' || slices.ContainsFunc([]string{"{.", ",.", "/.", `\.`}, within)
}

func matches(pattern, name string) bool {
	ok, err := doublestar.Match(pattern, name)
	return ok && err == nil
}

// listFiles calls each for the matching regular files, each once, folder by folder and sorted by name, until it returns
// an error. It does not follow symbolic links below the fixed part of the pattern, neither to folders nor to files. It
// skips files that vanish during the listing; a folder that cannot be read is an error.
func listFiles(ctx context.Context, pattern, dir string, v Values, each func(Item) error) error {
	expanded, err := expandGlob(pattern, dir, v)
	if err != nil {
		return err
	}
	g, err := parseGlob(expanded)
	if err != nil {
		return err
	}
	// A path that ends in a dot makes the walk enter a linked folder.
	root := from(dir, g.base) + "/."
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case path == root:
			return err
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		item, err := g.visit(root, path, entry)
		if err != nil || item.Name == "" {
			return err
		}
		return each(item)
	})
	if err != nil {
		return fmt.Errorf("list files of glob %q: %w", expanded, err)
	}
	return nil
}

// visit judges one entry of the walk; an item without a name is none.
func (g *glob) visit(root, path string, entry fs.DirEntry) (Item, error) {
	below := path
	if top := filepath.Clean(root); top != "." {
		below = strings.TrimPrefix(path[len(top):], "/")
	}
	if entry.IsDir() {
		if !g.enters(entry.Name(), strings.Count(below, "/")) {
			return Item{}, fs.SkipDir
		}
		return Item{}, nil
	}
	if !entry.Type().IsRegular() || !matches(g.pattern, below) {
		return Item{}, nil
	}
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return Item{}, nil
	}
	if err != nil {
		return Item{}, err
	}
	return Item{Name: g.prefix + below, Path: path, Size: info.Size()}, nil
}

// expandGlob replaces the references of a pattern. A value may be a path or a pattern: if a file or folder
// with that literal name exists (a folder "photos [2024]"), its special characters are literal, otherwise
// they are special.
func expandGlob(pattern, dir string, v Values) (string, error) {
	if err := emptyReference(pattern, v); err != nil {
		return "", err
	}
	parts := slices.Collect(pieces(pattern))
	var out, plain strings.Builder
	for i, p := range parts {
		if p.ref == "" {
			out.WriteString(p.literal)
			plain.WriteString(p.literal)
			continue
		}
		value := v.reference(p.ref)
		plain.WriteString(value)
		name := plain.String()
		if i+1 < len(parts) {
			rest, _, _ := strings.Cut(parts[i+1].literal, "/")
			name += rest
		}
		if strings.ContainsAny(value, `*?[]{}\,`) {
			if _, err := os.Lstat(from(dir, name)); err == nil {
				value = globEscaper.Replace(value)
			}
		}
		out.WriteString(value)
	}
	return out.String(), nil
}
