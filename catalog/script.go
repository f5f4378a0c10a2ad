package catalog

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// interpreter is a program that takes a script as the argument behind an option, or joined to it.
type interpreter struct {
	program *regexp.Regexp // its name without the folder
	option  *regexp.Regexp // the option before the script
	joined  *regexp.Regexp // the beginning of an option that has the script in the same argument
	valued  *regexp.Regexp // an option whose value is the next argument
	operand bool           // options may appear between the option and the script
	safe    string         // the rest of run that gives the script a value as an argument; %s is the reference
}

var interpreters = []interpreter{
	{
		regexp.MustCompile(`^(ba|da|a|z|k|mk)?sh$`), regexp.MustCompile(`^[-+][A-Za-z]*c[A-Za-z]*$`),
		regexp.MustCompile(`^[-+][A-Za-z]*?c`),
		regexp.MustCompile(`^([-+][A-Za-z]*[oO]|--rcfile|--init-file)$`), true, `'... "$1" ...', sh, "%s"`,
	},
	{
		regexp.MustCompile(`^(python|pypy)[0-9.]*$`), regexp.MustCompile(`^-[A-Za-z]*c$`),
		regexp.MustCompile(`^-[bBdEhiIOPqRsSuvx]*c`),
		regexp.MustCompile(`^-[A-Za-z]*[WX]$`), false, `'import sys; ... sys.argv[1] ...', "%s"`,
	},
	{
		regexp.MustCompile(`^perl[0-9.]*$`), regexp.MustCompile(`^-[A-Za-z0-9]*[eE]$`),
		regexp.MustCompile(`^-[aclnpsStTuUwWX0-9]*[eE]`),
		regexp.MustCompile(`^-I$`), false, `'... $ARGV[0] ...', "%s"`,
	},
	{
		regexp.MustCompile(`^ruby[0-9.]*$`), regexp.MustCompile(`^-[A-Za-z0-9]*e$`), regexp.MustCompile(`^-[aclnpsSwW0-9]*e`),
		regexp.MustCompile(`^-[Ir]$`), false, `'... ARGV[0] ...', "%s"`,
	},
	{
		regexp.MustCompile(`^node(js)?$`), regexp.MustCompile(`^(-e|-p|-pe|--eval|--print)$`),
		regexp.MustCompile(`^--(eval|print)=`),
		regexp.MustCompile(`^(-r|--require|--import)$`), false, `'... process.argv[1] ...', "%s"`,
	},
}

// Warnings are what is dangerous in the definition. It can be used all the same.
func (d *Definition) Warnings() Problems { return d.warnings }

// unsafeShell decodes the key that allows references in scripts.
func (j *jobDecoder) unsafeShell(n *node) {
	word, _ := j.word(n, "unsafe_shell", []string{"allow"})
	j.def.unsafeShell = word == "allow"
}

// warnOfScripts warns of references in the scripts of interpreters, of the job and of its steps: the interpreter
// reads a value as code.
func (j *jobDecoder) warnOfScripts() {
	if j.def.unsafeShell {
		return
	}
	j.warnOfScript(j.runAt, j.def.Run)
	for _, s := range j.steps {
		j.warnOfScript(s.runAt, s.def.Run)
	}
}

func (j *jobDecoder) warnOfScript(at []*node, run []string) {
	found, is := scriptOf(run)
	if !is || len(at) != len(run) {
		return
	}
	for p := range pieces(run[found.script]) {
		if p.ref == "" || p.ref == "id" {
			continue // an ID has no character that means anything to an interpreter
		}
		reference, place := "${"+p.ref+"}", j.position(at[found.script])
		j.def.warnings = append(j.def.warnings, &Problem{
			File: place.File, Line: place.Line, Column: place.Column,
			Message: fmt.Sprintf("%s is inside the script of %s, which would run its value as code", clip(reference),
				clip(run[found.program])),
			Hint: fmt.Sprintf("write run: [%s, "+found.in.safe+"], or unsafe_shell: allow in the job",
				strings.Join(found.before, ", "), clip(reference)),
		})
		return // one warning for each script
	}
}

// foundScript is a script in an argument vector.
type foundScript struct {
	in              *interpreter
	program, script int      // the places of the interpreter and of the argument that has the script
	before          []string // all that comes before the script, with the option as an argument of its own
}

// scriptOf finds the script of an interpreter in an argument vector. The interpreter may come after other programs,
// as in [nice, sh, -c, SCRIPT].
func scriptOf(run []string) (found foundScript, is bool) {
	for i, argument := range run {
		k := slices.IndexFunc(interpreters, func(in interpreter) bool { return in.program.MatchString(path.Base(argument)) })
		if k < 0 {
			continue
		}
		if found, is = interpreters[k].scriptOf(run, i); is {
			return found, true
		}
	}
	return found, false
}

// scriptOf finds the script of an interpreter that is one of the arguments.
func (in *interpreter) scriptOf(run []string, program int) (found foundScript, is bool) {
	operand := false // the script is the first argument that is no option
	for o := program + 1; o < len(run); o++ {
		if !strings.HasPrefix(run[o], "-") && !strings.HasPrefix(run[o], "+") {
			return foundScript{in, program, o, run[:o]}, operand
		}
		joined, valued := in.joined.FindString(run[o]), in.valued.MatchString(run[o])
		switch {
		case in.option.MatchString(run[o]) && in.operand:
			operand = true
		case in.option.MatchString(run[o]):
			return foundScript{in, program, min(o+1, len(run)-1), run[:o+1]}, o+1 < len(run)
		case joined != "":
			return foundScript{in, program, o, append(slices.Clone(run[:o]), strings.TrimSuffix(joined, "="))}, true
		}
		if valued {
			o++
		}
	}
	return found, false
}
