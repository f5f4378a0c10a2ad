package control

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// mostKept bounds how many definitions of earlier wordings are kept in memory.
const mostKept = 200

// keptDefinitions are definitions that jobs had before, by hash, as far as somebody asked for an operation of theirs.
type keptDefinitions struct {
	mu    sync.Mutex
	known map[string]*catalog.Definition
}

// definitionOf returns the definition under which an operation was submitted, nil when it cannot be read.
func (s *Server) definitionOf(rec *statefs.Record) *catalog.Definition {
	current := s.catalog.Get(rec.Group, rec.Job)
	if rec.Definition == "" || current != nil && current.Hash() == rec.Definition {
		return current
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	if def := s.kept.known[rec.Definition]; def != nil {
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
	if s.kept.known == nil || len(s.kept.known) >= mostKept {
		s.kept.known = make(map[string]*catalog.Definition)
	}
	s.kept.known[rec.Definition] = list[0]
	return list[0]
}

// showSteps adds the steps in their order, with how long each took, and what a person has to know.
func (s *Server) showSteps(out *operationJSON) {
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
