package browsertest

import (
	"context"
	"fmt"
)

// aiming brings an element into sight and says where its middle is. It lets the next click through only to that
// element, so that a list which moves between the two cannot have another one clicked.
const aiming = `(() => {
	const element = (() => { try { return %s; } catch { return null; } })();
	if (!element || !element.isConnected) return null;
	element.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});
	const box = element.getBoundingClientRect();
	const x = box.x + box.width / 2, y = box.y + box.height / 2;
	const hit = document.elementFromPoint(x, y);
	if (box.width === 0 || !hit || !element.contains(hit)) return null;
	if (globalThis.aimed) for (const type of ['mousedown', 'click']) removeEventListener(type, globalThis.aimed, true);
	globalThis.clicked = false;
	globalThis.aimed = (event) => {
		if (element.contains(event.target)) {
			globalThis.clicked ||= event.type === 'click';
		} else {
			event.preventDefault();
			event.stopImmediatePropagation();
		}
	};
	for (const type of ['mousedown', 'click']) addEventListener(type, globalThis.aimed, true);
	return {x, y};
})()`

// Click clicks an element, which an expression of JavaScript finds, with the mouse: it waits until it is there and
// nothing covers it.
func (p *Page) Click(element string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		p.Wait(element)
		var at *struct{ X, Y float64 }
		p.Eval(fmt.Sprintf(aiming, element), &at)
		if at == nil {
			p.Eval("new Promise((resolve) => setTimeout(resolve, 50))", nil) // it is covered, or just goes
			continue
		}
		for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
			p.ask(p.session, "Input.dispatchMouseEvent", map[string]any{
				"type": kind, "x": at.X, "y": at.Y, "button": "left",
				"clickCount": 1,
			}, nil)
		}
		var hit bool
		p.Eval(`(() => { for (const type of ['mousedown', 'click']) removeEventListener(type, globalThis.aimed, true); return globalThis.clicked; })()`, &hit)
		if hit {
			return
		}
	}
	p.t.Fatalf("could not click %s; the page shows: %s", element, p.Text("document.body.innerText.slice(0, 3000)"))
}

// key is what a keyboard sends for a key.
type key struct {
	code, text string
	number     int
	shift      bool
}

var keys = map[string]key{
	"Tab": {"Tab", "", 9, false}, "Shift+Tab": {"Tab", "", 9, true}, "Enter": {"Enter", "\r", 13, false},
	"Escape": {"Escape", "", 27, false}, "Space": {"Space", " ", 32, false},
	"ArrowUp": {"ArrowUp", "", 38, false}, "ArrowDown": {"ArrowDown", "", 40, false}, "/": {"Slash", "/", 191, false},
}

// Press presses keys one after the other: Tab, Shift+Tab, Enter, Escape, Space, ArrowUp, ArrowDown, /.
func (p *Page) Press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		k, ok := keys[name]
		if !ok {
			p.t.Fatalf("there is no key %q", name)
		}
		of := map[string]any{
			"key": k.code, "code": k.code, "windowsVirtualKeyCode": k.number,
			"nativeVirtualKeyCode": k.number, "modifiers": 0,
		}
		if k.text != "" {
			of["key"] = k.text
			of["text"] = k.text
		}
		if k.code == "Enter" {
			of["key"] = k.code
		}
		if k.shift {
			of["modifiers"] = 8
		}
		for _, kind := range []string{"keyDown", "keyUp"} {
			of["type"] = kind
			p.ask(p.session, "Input.dispatchKeyEvent", of, nil)
		}
	}
}

// Type types text into what has the focus.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.ask(p.session, "Input.insertText", map[string]any{"text": text}, nil)
}

// TabTo presses Tab until a condition on the focused element, called at, holds; it fails when the focus has gone
// round without that.
func (p *Page) TabTo(condition string) {
	p.t.Helper()
	const most = 300
	for range most {
		p.Press("Tab")
		var there bool
		p.Eval("((at) => Boolean("+condition+"))(document.activeElement)", &there)
		if there {
			return
		}
	}
	p.t.Fatalf("pressed Tab %d times and came to nothing for which %s holds", most, condition)
}
