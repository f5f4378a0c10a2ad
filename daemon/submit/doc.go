// Package submit turns a request into an operation: a job, its parameters and the options of the submit
// become one statefs.Submission, whether they came as a URL and a body, as one entry of a list, or as a file.
//
//	query, JSON entry, file ──> Options ──┐
//	catalog.Definition ───────────────────┼── Build ──> statefs.Submission ──> Intake ──> an operation,
//	catalog.Params ───────────────────────┘                                              new or there already
//
// [Intake] returns an equal live operation instead of making a second one. The record and the marker of that
// operation decide; the index in memory, which the daemon maintains, only finds candidates.
//
// An invalid submit is refused as a whole before anything is written: the error is an [*OptionError] or a
// [*catalog.ParamError] and names field and value.
package submit
