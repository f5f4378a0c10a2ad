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
// A definition is immutable once it was parsed. [Catalog] holds the set of
// definitions that submissions use: the files in the job folders are the
// authority, a [Catalog.Reload] reads them again and swaps the whole set at
// once, so readers see the old set or the new one and never a mixture. Live
// work does not look here: it keeps the text ([Definition.Source]) under which
// it was submitted, and Parse of that text gives an equal definition.
//
// What happens on failure:
//
//   - A file with a mistake is reported with file, line, column and a hint, and
//     its jobs stay as its last good version had them. A file counts as a whole:
//     one wrong document keeps all of them back.
//   - A folder that cannot be listed is reported; its files stay as they were.
//   - A file that is gone takes its jobs with it.
//   - Two jobs with one endpoint name are both reported and neither is taken;
//     what stood under that name before stays.
//
// # Steps
//
// A job may have steps instead of work of its own. Each has a definition of its
// own ([Step.Work]): that of the job, with what the step says itself, so that
// what runs a job can run a step. The steps stand in the order in which they are
// done, whatever their order in the file. Conditions are compiled once, when the
// file is read, and judged by [Step.Holds] without effects and in bounded time.
//
// # References
//
// In the elements of run, in the values of env, in dir and in the strings of
// items, these references are replaced: ${params.NAME}, ${item} and ${id}, and
// in those of a step ${steps.NAME.outputs.NAME} of each step that comes before
// it. In key it is ${params.NAME} alone. Any other "${" is left as it is. A value is put in as it is, inside the one
// element that names it: there is no shell, a value never becomes two
// arguments, and a reference inside a value is not looked at again. A parameter
// without a value and an output that was not left give the empty text; an output
// that is no text is put in as JSON.
//
// Two things remain the author's part. A value that starts with "-" looks like
// an option to the program that gets it: write "--" before it where the program
// knows that ([rm, --, "${params.file}"]), join it to its option
// ("--title=${params.title}"), start a glob with "./", or give the parameter a
// pattern. And a job that names a shell should pass values beside the script
// ([sh, -c, 'echo "$1"', sh, "${params.title}"]) or read JOBDIR_PARAM_TITLE,
// because text put into a script is code.
package catalog
