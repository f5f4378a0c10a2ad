package outbox

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// BenchmarkMany measures an outbox in which a hundred thousand entries wait for a target that is
// down.
func BenchmarkMany(b *testing.B) {
	const many = 100_000
	fill := func(b *testing.B) *Plan {
		b.Helper()
		p := planOf(16, 4)
		for n := range many {
			p.Add(nameIn(b, n), at("a"), began)
		}
		return p
	}
	b.Run("summary", func(b *testing.B) {
		p := fill(b)
		b.ReportAllocs()
		for b.Loop() {
			if s := p.Summary(); s.Pending != many {
				b.Fatal(s.Pending)
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		p := fill(b)
		b.ReportAllocs()
		for b.Loop() {
			if page, total := p.Select(func(*statefs.OutboxLine) bool { return true }, nil, 200); len(page) != 200 || total != many {
				b.Fatal(total)
			}
		}
	})
}
