package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Page is a tab with a profile of its own. It belongs to one test.
type Page struct {
	t       *testing.T
	browser *Browser
	session string
	context string

	mu       sync.Mutex
	problems []string
}

// Page opens an empty tab, which is closed when the test ends.
func (b *Browser) Page(t *testing.T) *Page {
	t.Helper()
	p := &Page{t: t, browser: b}
	var made struct {
		BrowserContextID, TargetID, SessionID string
	}
	p.ask("", "Target.createBrowserContext", nil, &made)
	p.context = made.BrowserContextID
	p.ask("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": p.context}, &made)
	p.ask("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	p.session = made.SessionID
	b.conn.hear(p.session, p.hear)
	t.Cleanup(func() {
		b.conn.hear(p.session, nil)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// the browser may be gone
		_ = b.conn.call(ctx, "", "Target.disposeBrowserContext", map[string]any{"browserContextId": p.context}, nil)
	})
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.ask(p.session, domain+".enable", nil, nil)
	}
	// tabs of other tests may be in front of it
	p.ask(p.session, "Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	p.Size(1280, 800)
	return p
}

// ask calls a method of the protocol.
func (p *Page) ask(session, method string, params, result any) {
	p.t.Helper()
	if err := p.try(session, method, params, result); err != nil {
		p.t.Fatalf("%v\nthe browser wrote:\n%s", err, p.browser.written)
	}
}

func (p *Page) try(session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	return p.browser.conn.call(ctx, session, method, params, result)
}

// hear keeps what the page complains of.
func (p *Page) hear(method string, params json.RawMessage) {
	var of struct {
		Type string
		Args []struct {
			Value       json.RawMessage
			Description string
		}
		Entry            struct{ Source, Level, Text, URL string }
		ExceptionDetails exception
	}
	if json.Unmarshal(params, &of) != nil {
		return
	}
	problem := ""
	switch {
	case method == "Runtime.exceptionThrown":
		problem = "exception: " + of.ExceptionDetails.text()
	case method == "Runtime.consoleAPICalled" && (of.Type == "error" || of.Type == "warning" || of.Type == "assert"):
		words := []string{"console " + of.Type + ":"}
		for _, arg := range of.Args {
			words = append(words, string(arg.Value)+arg.Description)
		}
		problem = strings.Join(words, " ")
	case method == "Log.entryAdded" && (of.Entry.Level == "error" || of.Entry.Level == "warning"):
		problem = of.Entry.Source + ": " + of.Entry.Text + " " + of.Entry.URL
	}
	if problem != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.problems = append(p.problems, problem)
	}
}

// Problems returns what the page complained of since it was opened: exceptions, errors and warnings of the console,
// violations of its policy, and, beginning with "network:", answers that are errors.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// Open has the page go to an address, and returns when it is there, maybe before all of it is loaded.
func (p *Page) Open(url string) {
	p.t.Helper()
	var went struct{ ErrorText string }
	p.ask(p.session, "Page.navigate", map[string]any{"url": url}, &went)
	if went.ErrorText != "" {
		p.t.Fatalf("open %s: %s", url, went.ErrorText)
	}
}

// Reload reads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.ask(p.session, "Page.reload", nil, nil)
}

// exception is what a script threw.
type exception struct {
	Text      string
	URL       string
	Line      int `json:"lineNumber"`
	Exception struct{ Description string }
}

func (e exception) text() string {
	return fmt.Sprintf("%s %s (%s:%d)", e.Text, e.Exception.Description, e.URL, e.Line+1)
}

// evaluate returns what an expression, or what it promises, is; failed says what it threw.
func (p *Page) evaluate(expression string) (value json.RawMessage, failed string, err error) {
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *exception
	}
	err = p.try(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true,
		"returnByValue": true, "userGesture": true,
	}, &answer)
	if err == nil && answer.ExceptionDetails != nil {
		failed = answer.ExceptionDetails.text()
	}
	return answer.Result.Value, failed, err
}

// Eval reads what an expression of JavaScript, or what it promises, is. into may be nil.
func (p *Page) Eval(expression string, into any) {
	p.t.Helper()
	value, failed, err := p.evaluate(expression)
	if err != nil || failed != "" {
		p.t.Fatalf("%s: %s %v", expression, failed, err)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(value, into); err != nil {
		p.t.Fatalf("%s is %s: %v", expression, value, err)
	}
}

// Text returns what an expression is as text.
func (p *Page) Text(expression string) (text string) {
	p.t.Helper()
	p.Eval("String("+expression+")", &text)
	return text
}

// waiting looks whenever something of the page changes, and answers once the condition holds, or with false when the
// time is over.
const waiting = `new Promise((resolve) => {
	const holds = () => { try { return Boolean(%s); } catch { return false; } };
	const events = ['focusin', 'focusout', 'scroll', 'input', 'change', 'close', 'hashchange', 'resize', 'load'];
	const end = (held) => {
		observer.disconnect();
		clearTimeout(timer);
		for (const event of events) removeEventListener(event, look, true);
		resolve(held);
	};
	const look = () => { if (holds()) end(true); };
	const observer = new MutationObserver(look);
	observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	for (const event of events) addEventListener(event, look, true);
	const timer = setTimeout(() => end(holds()), %d);
	look();
})`

// Wait waits until a condition in JavaScript holds. A condition that throws does not hold.
func (p *Page) Wait(condition string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		value, failed, err := p.evaluate(fmt.Sprintf(waiting, condition, (patience / 2).Milliseconds()))
		if err == nil && failed == "" && string(value) == "true" {
			return
		}
		// A page that is left takes its promises with it: the next one is asked.
		if err == nil && failed == "" || ctx.Err() != nil || err != nil && !strings.Contains(err.Error(), "context") &&
			!strings.Contains(err.Error(), "navigated") {
			text, _,
				_ := p.evaluate("`${location.hash} focus on ${document.activeElement?.outerHTML.slice(0, 200)}\n${document.body?.innerText.slice(0, 3000)}`")
			p.t.Fatalf("waited in vain for: %s\n%s %v\nproblems: %q\nthe page shows: %s", condition, failed,
				err, p.Problems(), text)
		}
	}
}

// Size gives the page a width and a height, in pixels.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.ask(p.session, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": false,
	}, nil)
}

// Prefer sets what the person prefers, such as prefers-color-scheme: dark.
func (p *Page) Prefer(name, value string) {
	p.t.Helper()
	p.ask(p.session, "Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": name, "value": value}}}, nil)
}

// Screenshot returns what the page shows as a PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var shot struct{ Data []byte }
	p.ask(p.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	return shot.Data
}
