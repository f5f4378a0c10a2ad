// Package web is the embedded page: the files of the page on which a person watches and controls operations.
//
//	browser ── GET /ui/NAME ──▶ control ── Open(NAME) ──▶ page/NAME, as it was compiled in
//	   └────── /api/v1/… ─────▶ control    what the page shows, with the token that the person typed
//
// The files hold nothing of any daemon, so they may be given to everybody; all they show comes through the HTTP interface. They are HTML, CSS and
// JavaScript modules as a browser reads them: there is no step that builds them, and no library in them. Each has one role; app.js begins.
//
// Nothing can fail here: a name that is not there is not found.
package web

import (
	"embed"
	"path"
)

//go:embed page
var files embed.FS

// Index is the name of the file that a browser opens.
const Index = "index.html"

// Policy is the Content-Security-Policy of the page: only files of the daemon itself run, are shown and are asked. No script is inline, and no text can
// become markup or code, whatever a log or a parameter holds: the ways in which a script could do that are closed.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// medias are the types of the files. The system may know others, or none.
var medias = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// File is one file of the page. Its data may not be changed.
type File struct {
	// Media is what the header Content-Type says.
	Media string
	Data  []byte
}

// Open returns the file of a name, such as app.js; false when there is none.
func Open(name string) (File, bool) {
	media, known := medias[path.Ext(name)]
	data, err := files.ReadFile("page/" + name)
	if !known || err != nil {
		return File{}, false
	}
	return File{Media: media, Data: data}, true
}
