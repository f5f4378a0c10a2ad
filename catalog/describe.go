package catalog

import (
	"encoding/json"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/statefs/api"
)

// Describe describes the job for clients, without its steps, milestones and definition.
func (d *Definition) Describe() api.Job {
	out := api.Job{
		Group: d.Group, Name: d.Name, Endpoint: d.Endpoint(), Path: "/" + d.Address(), Summary: d.Summary,
		Params: make([]api.Param, len(d.Params)), Tags: d.Tags, Work: string(d.Work()), OnDisconnect: string(d.OnDisconnect),
	}
	for i := range d.Params {
		p := &d.Params[i]
		to := api.Param{
			Name: p.Name, Type: string(p.Type), Required: p.Required, Default: valueJSON(p.Default), Minimum: valueJSON(p.Minimum),
			Maximum: valueJSON(p.Maximum), Pattern: p.Pattern, Summary: p.Summary,
		}
		for _, value := range p.Enum {
			to.Enum = append(to.Enum, valueJSON(value))
		}
		for _, name := range p.Normalize {
			to.Normalize = append(to.Normalize, string(name))
		}
		out.Params[i] = to
	}
	return out
}

// DescribeWhole is Describe with the steps, milestones and definition.
func (d *Definition) DescribeWhole() api.Job {
	out := d.Describe()
	for _, s := range d.Steps {
		work := "gate"
		if s.Work != nil {
			work = string(s.Work.Work())
		}
		out.Steps = append(out.Steps, api.JobStep{
			Name: s.Name, Summary: s.Summary, Needs: s.Needs, Work: work, Optional: s.Optional, Approve: s.Approve,
			When: s.When, Milestone: s.Milestone, Outputs: s.Outputs, Lane: s.Lane, Limits: s.Limits,
		})
	}
	out.Milestones, out.Definition = d.Milestones, string(d.Source())
	return out
}

// valueJSON returns the JSON of a value, nil when there is none.
func valueJSON(v param.Value) json.RawMessage {
	if v.IsZero() {
		return nil
	}
	return v.AppendJSON(nil)
}
