// Package submit turns what somebody asks for into an operation: a job, its
// parameters and the options of the submit become one statefs.Submission,
// whether they came as a URL and a body, as one entry of a list, or as a file.
//
//	query, JSON entry, file ──> Options ──┐
//	catalog.Definition ───────────────────┼── Build ──> statefs.Submission ──> Intake ──> an operation,
//	catalog.Params ───────────────────────┘                                              new or there already
//
// [Intake] gives an equal live operation instead of making a second one. Who
// decides: the record and the marker of that operation. What the intake has in
// memory is a guess of where to look, which the daemon feeds.
//
// A submit that is wrong is refused as a whole, before anything is written: the
// error is an [*OptionError] or a [*catalog.ParamError] and names field and
// value.
package submit
