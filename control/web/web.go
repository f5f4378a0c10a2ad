// Package web embeds the files of the web page on which a person watches and controls operations.
//
//	browser ── GET /ui/NAME ──▶ control ── Open(NAME) ──▶ page/NAME, compiled into the binary
//	   └────── /api/v1/… ─────▶ control    what the page shows, with the token that the person typed
//
// The files contain no data of a daemon, so they need no token; the page loads all data through the HTTP interface.
// They are HTML, CSS and JavaScript modules that the browser loads as they are: there is no build step and no library.
// Each file has one role; app.js is the entry point.
//
// Open is the only operation, and it cannot fail: an unknown name is not found.
package web

import (
	"embed"
	"path"
)

//go:embed page
var files embed.FS

// Index is the file name of the start page.
const Index = "index.html"

// Buttons is the file name of the script that has the buttons of the actions. The server makes it from their
// table, so it is not among the files.
const Buttons = "buttons.js"

// Policy is the Content-Security-Policy of the page: it may only load, run, show and connect to files of the daemon. No
// script is inline, and trusted types prevent text of a log or a parameter from becoming markup or code.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// medias are the media types by file extension. The types that the system knows may differ, or be missing.
var medias = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// File is one file of the page. Its data must not be changed.
type File struct {
	// Media is the value of the header Content-Type.
	Media string
	Data  []byte
}

// Open returns the file with a name, such as app.js; false if there is none.
func Open(name string) (File, bool) {
	media, known := medias[path.Ext(name)]
	data, err := files.ReadFile("page/" + name)
	if !known || err != nil {
		return File{}, false
	}
	return File{Media: media, Data: data}, true
}
