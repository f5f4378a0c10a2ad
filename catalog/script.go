package catalog

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// interpreter is a program that takes a script as an argument.
type interpreter struct {
	program outbox.Expression // its name without the folder
	option  outbox.Expression // the option before the script
	joined  outbox.Expression // the beginning of an option that has the script in the same argument
	valued  outbox.Expression // an option whose value is the next argument
	stop    outbox.Expression // an option with which there is no script in the arguments, "" for none
	where   scriptPlace
	safe    string // the rest of run that gives the script a value as an argument; %s is the reference
	instead string // the settings that do so, for a program whose script takes no arguments
	does    string // what it does with a value in the script; "" is: run it as code
}

// scriptPlace is where the script is.
type scriptPlace int

const (
	afterOption   scriptPlace = iota // behind the option
	afterOptions                     // behind the option and the options that follow it
	afterOperands                    // behind the option, which may come after operands
	afterFile                        // behind the option, which comes right after the first operand
	firstOperand                     // the first operand, unless an option gives a script or the file of one
	allOperands                      // all operands after the first one, and what follows them
)

// wrappers are programs that run the program in their arguments. Where the option alone does not give a script away,
// an interpreter counts only as the program of run or behind a wrapper.
const wrappers outbox.Expression = `^(env|nice|ionice|timeout|sudo|doas|nohup|setsid|stdbuf|time|chrt|taskset|setpriv|` +
	`chroot|unshare|flock|su|runuser|systemd-run|systemd-inhibit|xargs)$`

// none matches nothing.
const none outbox.Expression = `^\b$`

var interpreters = []interpreter{
	{
		program: `^(ba|da|a|z|k|mk)?sh$`, option: `^[-+][A-Za-z]*c[A-Za-z]*$`, joined: `^[-+][A-Za-z]*?c`,
		valued: `^([-+][A-Za-z]*[oO]|--rcfile|--init-file)$`, where: afterOptions, safe: `'... "$1" ...', sh, "%s"`,
	},
	{
		program: `^(python|pypy)[0-9.]*$`, option: `^-[A-Za-z]*c$`, joined: `^-[bBdEhiIOPqRsSuvx]*c`,
		valued: `^-[A-Za-z]*[WX]$`, safe: `'import sys; ... sys.argv[1] ...', "%s"`,
	},
	{
		program: `^perl[0-9.]*$`, option: `^-[A-Za-z0-9]*[eE]$`, joined: `^-[aclnpsStTuUwWX0-9]*[eE]`,
		valued: `^-I$`, safe: `'... $ARGV[0] ...', --, "%s"`,
	},
	{
		program: `^ruby[0-9.]*$`, option: `^-[A-Za-z0-9]*e$`, joined: `^-[aclnpsSwW0-9]*e`,
		valued: `^-[Ir]$`, safe: `'... ARGV[0] ...', --, "%s"`,
	},
	{
		program: `^node(js)?$`, option: `^(-e|-p|-pe|--eval|--print)$`, joined: `^--(eval|print)=`,
		valued: `^(-r|--require|--import)$`, safe: `'... process.argv[1] ...', --, "%s"`,
	},
	{
		program: `^php[0-9.]*$`, option: `^(-[rBRE]|--(run|process-begin|process-code|process-end))$`,
		joined: `^(-[rBRE]|--(run|process-begin|process-code|process-end)=)`,
		valued: `^-[cdz]$`, safe: `'... $argv[1] ...', --, "%s"`,
	},
	{
		program: `^(su|runuser)$`, option: `^(-[flmpP]*c|--command|--session-command)$`,
		joined: `^(-[flmpP]*c|--(session-)?command=)`, valued: `^-[gGswT]$`,
		stop:  `^(-u|--user|--)$`, // what follows is a program
		where: afterOperands, instead: `run: [su, USER, -c, '... "$1" ...', --, sh, "%s"]`,
	},
	{
		program: `^flock$`, option: `^(-c|--command)$`, joined: none, valued: `^(-[wE]|--(wait|timeout|conflict-exit-code))$`,
		where: afterFile, instead: `run: [flock, FILE, sh, -c, '... "$1" ...', sh, "%s"]`,
	},
	{
		program: `^env$`, option: `^(-[0iv]*S|--split-string)$`, joined: `^(-[0iv]*S|--split-string=)`,
		valued: `^(-[uC]|--(unset|chdir))$`, instead: `run: [env, PROGRAM, "%s"]`, does: "split its value into arguments",
	},
	{
		program: `^[gmn]?awk$`, option: `^(-e|--source)$`, joined: `^(-e|--source=)`, stop: `^(-f|--file)`,
		valued: `^(-[Fvi]|--(assign|field-separator))$`, where: firstOperand,
		instead: `run: [awk, '... ENVIRON["VALUE"] ...'] and env: {VALUE: "%s"}`,
	},
	{
		program: `^ssh$`, option: none, joined: none, valued: `^-[46AaCfGgKkMNnqsTtVvXxYy]*[bBcDEeFIiJLlmOoPpQRSWw]$`,
		where: allOperands, instead: `run: [bash, -c, 'ssh "$1" "... ${2@Q} ..."', bash, HOST, "%s"]`,
	},
}

// Warnings are what is dangerous in the definition. It can be used all the same.
func (d *Definition) Warnings() Problems { return d.warnings }

// warnOfScripts warns of references in the scripts of interpreters, of the job and of its steps: the interpreter
// reads a value as code.
func (j *jobDecoder) warnOfScripts() {
	if j.def.unsafeShell != "" {
		return
	}
	j.warnOfScript(j.values["run"], j.def.Run)
	for _, s := range j.steps {
		j.warnOfScript(s.values["run"], s.def.Run)
	}
}

func (j *jobDecoder) warnOfScript(at *yamlfile.Node, run []string) {
	found, is := scriptOf(run)
	if !is {
		return
	}
	for i := found.script; i < found.end; i++ {
		for p := range pieces(run[i]) {
			if p.ref == "" || p.ref == "id" {
				continue // an ID has no character that means anything to an interpreter
			}
			reference := phrase.Clip("${" + p.ref + "}")
			hint := fmt.Sprintf("write %s, or unsafe_shell: allow in the job", found.safe(reference))
			j.def.warnings = append(j.def.warnings, j.Position(at.Elements[i]).Problem(hint,
				"%s is inside the script of %s, which would %s", reference, phrase.Clip(run[found.program]),
				cmp.Or(found.in.does, "run its value as code")))
			return // one warning for each script
		}
	}
}

// foundScript is a script in an argument vector.
type foundScript struct {
	in          *interpreter
	program     int      // the place of the interpreter
	script, end int      // the arguments that have the script, without the last one
	before      []string // all that comes before the script, with the option as an argument of its own
}

// safe returns the settings that give the script a value as an argument.
func (f foundScript) safe(reference string) string {
	if f.in.instead != "" {
		return fmt.Sprintf(f.in.instead, reference)
	}
	return fmt.Sprintf("run: [%s, "+f.in.safe+"]", strings.Join(f.before, ", "), reference)
}

// scriptOf finds the script of an interpreter in an argument vector. The interpreter may come after other programs,
// as in [nice, sh, -c, SCRIPT].
func scriptOf(run []string) (found foundScript, is bool) {
	for i, argument := range run {
		k := slices.IndexFunc(interpreters, func(in interpreter) bool { return in.program.MatchString(path.Base(argument)) })
		if k < 0 {
			continue
		}
		in := &interpreters[k]
		if i > 0 && in.instead != "" && !wrappers.MatchString(path.Base(run[0])) {
			continue // it may be any word
		}
		if found, is = in.scriptOf(run, i); is {
			return found, true
		}
	}
	return found, false
}

// scriptOf finds the script of an interpreter that is one of the arguments.
func (in *interpreter) scriptOf(run []string, program int) (found foundScript, is bool) {
	found = foundScript{in: in, program: program}
	behind, operands := false, 0 // behind the option, if other options may follow it
	for o := program + 1; o < len(run); o++ {
		if !strings.HasPrefix(run[o], "-") && !strings.HasPrefix(run[o], "+") {
			found.script, found.end, found.before = o, o+1, run[:o]
			switch {
			case behind, in.where == firstOperand:
				return found, true
			case in.where == allOperands && operands == 1:
				found.end = len(run)
				return found, true
			case in.where == afterOption, in.where == afterOptions, in.where == afterFile && operands == 1:
				return found, false
			}
			operands++
			continue
		}
		joined, valued := in.joined.FindString(run[o]), in.valued.MatchString(run[o])
		switch {
		case in.stop != "" && in.stop.MatchString(run[o]):
			return found, false
		case in.option.MatchString(run[o]) && in.where == afterOptions:
			behind = true
		case in.option.MatchString(run[o]):
			found.script, found.end, found.before = o+1, min(o+2, len(run)), run[:o+1]
			return found, o+1 < len(run)
		case joined != "":
			found.script, found.end = o, o+1
			found.before = append(slices.Clone(run[:o]), strings.TrimSuffix(joined, "="))
			return found, true
		}
		if valued {
			o++
		}
	}
	return found, false
}
