package control

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// maxCachedDefinitions bounds the number of cached earlier definitions.
const maxCachedDefinitions = 200

// definitionCache caches earlier definitions of jobs by hash, once an operation that has one is shown.
type definitionCache struct {
	mu    sync.Mutex
	known map[string]*catalog.Definition
}

// definitionOf returns the definition with which an operation was submitted, nil when it cannot be read.
func (s *viewer) definitionOf(rec *statefs.Record) *catalog.Definition {
	current := s.catalog.Get(rec.Group, rec.Job)
	if rec.Definition == "" || current != nil && current.Hash() == rec.Definition {
		return current
	}
	s.definitions.mu.Lock()
	defer s.definitions.mu.Unlock()
	if def := s.definitions.known[rec.Definition]; def != nil {
		return def
	}
	source, err := s.tree.Definition(rec.Definition)
	if err != nil {
		return nil
	}
	list, err := catalog.Parse("definitions/"+rec.Definition+".yaml", source)
	if err != nil || len(list) != 1 {
		return nil
	}
	if s.definitions.known == nil || len(s.definitions.known) >= maxCachedDefinitions {
		s.definitions.known = make(map[string]*catalog.Definition)
	}
	s.definitions.known[rec.Definition] = list[0]
	return list[0]
}

// showSteps adds the steps in order, with the duration of each, and why a person has to act.
func (s *viewer) showSteps(out *operationJSON) {
	out.Attention = statefs.AttentionOf(out.ID, out.State, out.Record)
	if out.Record == nil || len(out.Record.Steps) == 0 {
		return
	}
	var graph steps.Graph
	if def := s.definitionOf(out.Record); def != nil {
		graph = def.Graph()
	}
	out.Steps = steps.Views(out.Record.Steps, graph, time.Now())
	allDone := out.State != statefs.Trailing
	if out.State.Terminal() || out.State == statefs.Trailing {
		out.AllDone = &allDone
	}
}
