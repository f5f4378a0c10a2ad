package catalog

import (
	"iter"
	"net/http"
	"path/filepath"
	"slices"
)

// HeaderValue reports whether a text can be the value of a header: visible characters of ASCII, spaces and
// tabs, 1,000 at most.
func HeaderValue(text string) bool { return headerText.MatchString(text) }

// headerNames gives the names of a mapping that may be headers, and their values.
func (j *jobDecoder) headerNames(w *WebhookTarget, key string, n *node) iter.Seq2[string, *node] {
	return func(yield func(string, *node) bool) {
		if n.kind != mappingKind {
			j.fail(n, "write NAME: VALUE", "%s must be a mapping, not %s", key, n.kind)
			return
		}
		if len(n.entries) > maxHeaders {
			j.fail(n, "", "%s has more than %d names", key, maxHeaders)
		}
		for _, e := range n.entries {
			name := http.CanonicalHeaderKey(e.key.text)
			switch {
			case !headerName.MatchString(name):
				j.fail(e.key, "letters, digits and -", "%s cannot have the name %q", key, clip(name))
			case slices.Contains(ownHeaders, name):
				j.fail(e.key, "the daemon sets it", "%s cannot have the name %q", key, name)
			case w.hasHeader(name):
				j.fail(e.key, "", "the name %q is given twice in headers", clip(name))
			}
			if !yield(name, e.value) {
				return
			}
		}
	}
}

func (w *WebhookTarget) hasHeader(name string) bool {
	return slices.ContainsFunc(w.Headers, func(v EnvVar) bool { return v.Name == name }) ||
		slices.ContainsFunc(w.SecretHeaders, func(h SecretHeader) bool { return h.Name == name })
}

func (j *jobDecoder) headers(w *WebhookTarget, n *node) {
	for name, value := range j.headerNames(w, "headers", n) {
		s, ok := j.written(value, "the value of "+clip(name))
		if !ok {
			continue
		}
		if !HeaderValue(s) {
			j.fail(value, "visible characters of ASCII and spaces", "the value of %s cannot be sent", clip(name))
		}
		j.unreferenced(value, "a header", "references belong into the path or the query of url")
		w.Headers = append(w.Headers, EnvVar{Name: name, Value: s})
	}
}

// secretHeaders decodes headers_file and headers_env: names, and where the values are.
func (j *jobDecoder) secretHeaders(w *WebhookTarget, key string, n *node) {
	for name, value := range j.headerNames(w, key, n) {
		h := SecretHeader{Name: name}
		s, ok := j.text(value, clip(name))
		switch {
		case !ok:
			continue
		case key == "headers_env" && !secretEnv.MatchString(s):
			j.fail(value, "it is a name that begins with "+SecretPrefix+", which no command gets",
				"headers_env cannot have the variable %q", clip(s))
		case key == "headers_env":
			h.From.Env = s
		case refers(s):
			j.unreferenced(value, key, "a secret comes from no parameter")
		case !filepath.IsAbs(s):
			j.fail(value, "write it from the root, such as /etc/jobdir/hook.token",
				"headers_file cannot have the file %q", clip(s))
		default:
			h.From.File = s
		}
		w.SecretHeaders = append(w.SecretHeaders, h)
	}
}
