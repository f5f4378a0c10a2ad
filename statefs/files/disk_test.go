package files

import (
	"testing"
	"time"
)

// A file that was created later with the inode number of a removed file is another file. A file
// system without creation times leaves only the inode number.
func TestIdentitySame(t *testing.T) {
	t.Parallel()
	born := time.Unix(1_764_162_420, 7)
	file := Identity{Inode: 7, Born: born}
	for name, test := range map[string]struct {
		other Identity
		want  bool
	}{
		"the same file":                        {file, true},
		"the same time in another zone":        {Identity{7, born.UTC()}, true},
		"inode number reused a moment later":   {Identity{7, born.Add(time.Nanosecond)}, false},
		"inode number reused, clock set back":  {Identity{7, born.Add(-time.Hour)}, false},
		"another file, created simultaneously": {Identity{8, born}, false},
		"no creation time":                     {Identity{Inode: 7}, true},
		"no creation time, another inode":      {Identity{Inode: 8}, false},
		"no file":                              {Identity{}, false},
	} {
		if file.Same(test.other) != test.want || test.other.Same(file) != test.want {
			t.Errorf("%s: Same of %+v and %+v is not %v", name, file, test.other, test.want)
		}
	}
	if (Identity{}).Same(Identity{}) {
		t.Error("the zero Identity is the same file as itself")
	}
}
