package s3test

import "testing"

// Begin runs a server of a kind until the test ends, with the buckets that it names. A test whose server is not
// installed is skipped with the command that gets it.
func Begin(tb testing.TB, kind Kind, buckets ...string) *Server {
	tb.Helper()
	s := Prepare(tb, kind)
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	for _, name := range buckets {
		if err := s.MakeBucket(tb.Context(), name); err != nil {
			tb.Fatalf("make the bucket %s: %v", name, err)
		}
	}
	return s
}

// Prepare is Begin without the start.
func Prepare(tb testing.TB, kind Kind) *Server {
	tb.Helper()
	if _, err := Find(kind); err != nil {
		tb.Skip(err)
	}
	s, err := New(kind, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return s
}
