package serve

import (
	"slices"
	"testing"

	"github.com/jobdir/jobdir/cli/config"
)

// The daemon answers to the host names of its listen addresses.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := &service{config: Config{
		Access: config.Access{Hosts: []string{"jobs.example"}},
		Listen: []string{"media.lan:8484", "jobs.example:80", "localhost:1", "127.0.0.1:2", "[::]:3", ":4", "unix:/run/a:5"},
	}}
	if got, want := s.hosts(), []string{"jobs.example", "media.lan"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
