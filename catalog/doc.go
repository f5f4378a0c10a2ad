// Package catalog reads job definitions: it turns YAML files into checked
// [Definition] values, binds the parameters of a submission to them and
// enumerates the items a job works through.
//
//	jobs/media.yaml ──split──> document ──parse──> node tree ──decode──> Definition
//	                                                                        │
//	      url.Values or JSON ──────────Bind, BindJSON───────────────> Params│
//	                                                                        v
//	                                           Command, Environ, Folder, Items.List
//
// A definition is immutable after parsing. [Catalog] holds the set of definitions that submissions use: the
// files in the job folders are the authority, and [Catalog.Reload] reads them again and swaps the whole set
// at once, so that readers see the old set or the new one and never a mixture. Live operations do not use the
// catalog: each keeps the text ([Definition.Source]) under which it was submitted, and Parse of that text
// gives an equal definition.
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	catalog     the set that submits use        catalog.go, folder.go, describe.go
//	parse       a file becomes definitions      parse.go, job_keys.go, parse_steps.go, step_graph.go,
//	                                            script.go, ineffective.go
//	readers     the value of one key            decoder.go, key.go, parse_items.go, parse_params.go,
//	                                            parse_deliver.go, parse_queue.go, parse_retry.go
//	definition  a job, its steps, its bindings  definition.go, step.go, bind.go
//	parts       parts of a job, with values     items.go, glob.go, deliver.go, retry.go, queue.go,
//	                                            schedule.go, then.go, expand.go, params.go
//
// # Errors
//
//   - A file with a mistake is reported with file, line, column and a hint, and its jobs keep their last
//     valid version. A file counts as a whole: one invalid document invalidates all its documents.
//   - A folder that cannot be listed is reported; its files keep their last version.
//   - The jobs of a removed file are removed.
//   - Two jobs with the same endpoint name are both reported and neither is used; the previous job of that
//     name stays.
//
// # Steps
//
// A job may have steps instead of work of its own. Each step has its own definition ([Step.Work]): that of
// the job, with the settings of the step, so that the code that runs a job can run a step. Steps are sorted
// in the order of their execution, whatever their order in the file. Conditions are compiled once, when the
// file is read; [Step.Holds] evaluates them without side effects and in bounded time.
//
// # References
//
// In the elements of run, in the values of env, in dir and in the strings of items, these references are
// replaced: ${params.NAME}, ${item} and ${id}, and in those of a step ${steps.NAME.outputs.NAME} of each
// earlier step. In key it is only ${params.NAME}. Any other "${" stays unchanged. A value is inserted
// verbatim into the element that names it: there is no shell, a value never becomes two arguments, and a
// reference inside a value is not replaced. A parameter without a value and a missing output give the empty
// text; an output that is no text is inserted as JSON.
//
// The author of a job must take care of two things. A value that starts with "-" looks like an option to the
// program that gets it: write "--" before it if the program supports that ([rm, --, "${params.file}"]), join
// it to its option ("--title=${params.title}"), start a glob with "./", or give the parameter a pattern. And
// a job that runs a shell should pass values beside the script ([sh, -c, 'echo "$1"', sh, "${params.title}"])
// or read JOBDIR_PARAM_TITLE, because text inserted into a script is code.
package catalog
