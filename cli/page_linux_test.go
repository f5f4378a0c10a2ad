package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/internal/browsertest"
)

// The page at /ui/ in a real browser, with a real daemon behind it.
func TestPage(t *testing.T) {
	t.Parallel()
	b := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, *browsertest.Browser){
		"mouse": pageWithTheMouse, "keyboard": pageWithTheKeyboard, "logs": pageWithLogs, "token": pageWithAToken,
		"restart": pageOverARestart,
		"links":   linksAreConfirmed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// pageWithTheMouse does what a person does who sees for the first time what is there, on the four views, wide and
// narrow.
func pageWithTheMouse(t *testing.T, b *browsertest.Browser) {
	r := newPageRig(t, "")
	mended, running, queued, delivered := r.submit("mended", "{}"), r.submit("forever", "{}"), r.submit("forever", "{}"),
		r.submit("delivered", "{}")
	p := r.open(b, "")
	p.Wait(is(mended, "failed_manual"))
	p.Wait(says(row(mended), "look (1 / 2): exit code 77: <b>no</b> file"))
	p.Wait(is(running, "running"))
	p.Wait(says(row(queued), "lane narrow is full"))
	p.Wait(is(delivered, "completed"))
	p.Wait(says("document.getElementById('counts')", "1 needs you"))

	// What failed is mended and tried again, and what waits for an approval then is approved.
	if err := os.WriteFile(filepath.Join(r.dir, "mended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Click(act(mended, "retry"))
	p.Wait(is(mended, "waiting_approval"))
	p.Click(act(mended, "approve"))
	p.Wait(is(mended, "completed"))

	// An optional step that failed needs a person after its operation has ended, too.
	aside := r.submit("aside", "{}")
	p.Wait(is(aside, "trailing"))
	p.Wait(says(row(aside)+".closest('section')", "Needs you"))
	p.Wait(says(row(aside), "shelve (2 / 2): exit code 78: no shelf"))
	p.Wait(says("document.getElementById('counts')", "1 needs you"))
	if err := os.WriteFile(filepath.Join(r.dir, "shelf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Click(act(aside, "retry"))
	p.Wait(is(aside, "completed"))

	// Pause and resume in the list, cancel where it is open, after a question.
	p.Click(act(running, "pause"))
	p.Wait(is(running, "paused"))
	p.Click(act(running, "resume"))
	p.Wait(is(running, "running"))
	p.Click(row(running) + ".querySelector('.name')")
	p.Click(openAct(running, "cancel"))
	p.Click(confirm)
	p.Wait(is(running, "cancelled"))
	p.Wait(is(queued, "running"))
	p.Wait(says(open(running), "cancelled"))

	// A cancel that the work does not heed can be forced, after another question.
	stubborn := r.submit("stubborn", "{}")
	p.Wait(is(stubborn, "running"))
	p.Click(row(stubborn) + ".querySelector('.name')")
	p.Wait(says(open(stubborn)+".querySelector('.log')", "begun"))
	p.Wait("!" + openAct(stubborn, "force"))
	p.Click(openAct(stubborn, "cancel"))
	p.Click(confirm)
	p.Wait(says(open(stubborn), "cancel asked for"))
	p.Wait(fmt.Sprintf("%s && %s && !%s", act(stubborn, "force"), openAct(stubborn, "force"), openAct(stubborn, "cancel")))
	p.Click(openAct(stubborn, "force"))
	p.Click(confirm)
	p.Wait(is(stubborn, "cancelled"))
	p.Press("Escape")

	// A deletion closes it. What is started again is another one, which is opened beside it.
	p.Click(openAct(running, "delete"))
	p.Click(confirm)
	p.Wait("!" + open(running) + " && !" + row(running))
	p.Click(act(queued, "cancel"))
	p.Click(confirm)
	p.Wait(is(queued, "cancelled"))
	p.Click(row(queued) + ".querySelector('.name')")
	p.Click(openAct(queued, "again"))
	p.Wait("document.querySelectorAll('.pane').length === 2")

	// The filter, in the address too.
	p.Click("document.getElementById('f-job')")
	p.Type("g/delivered")
	p.Wait(fmt.Sprintf("%s && !%s && location.hash.includes('job=g/delivered')", row(delivered), row(queued)))

	// More of what has ended.
	p.Eval("location.hash = '#/operations?status=cancelled'", nil)
	var many []string
	for range 58 {
		many = append(many, `{"job": "g/forever", "delay": "1h"}`)
	}
	r.post("/api/v1/operations", "["+strings.Join(many, ",")+"]")
	r.post("/api/v1/bulk", `{"action": "cancel", "filter": {"status": "scheduled"}}`)
	p.Wait("document.querySelectorAll('.row[data-state=cancelled]').length === 50")
	p.Click("[...document.querySelectorAll('button.more')].find((node) => !node.hidden && node.offsetParent)")
	p.Wait("document.querySelectorAll('.row[data-state=cancelled]').length === 60 && ![...document.querySelectorAll('button.more')].some((node) => node.offsetParent)")

	// Lanes.
	lane := func(name string) string {
		return fmt.Sprintf(`document.querySelector('.lanes .row[data-key="narrow"] [data-act="%s"]')`, name)
	}
	p.Click("document.querySelector('[data-view=lanes]')")
	p.Click(lane("pause"))
	p.Click("document.getElementById('ask-reason')")
	p.Type("new <i>cookies</i>")
	p.Click(confirm)
	p.Wait(says(`document.querySelector('.lanes .row[data-key="narrow"][data-state=paused]')`, "new <i>cookies</i>"))
	p.Click(lane("resume"))
	p.Wait(`document.querySelector('.lanes .row[data-key="narrow"][data-state=open]')`)
	p.Click(`document.querySelector('.lanes .row[data-key="all"] [data-act="pause"]')`)
	p.Click(confirm)
	p.Wait(`document.querySelector('.lanes .row[data-key="narrow"][data-state=paused]') && !` + lane("resume"))
	p.Click(`document.querySelector('.lanes .row[data-key="all"] [data-act="resume"]')`)
	p.Wait(lane("pause"))

	// The outbox: the folder is there now.
	entry := delivered + ".1-folder"
	p.Click("document.querySelector('[data-view=outbox]')")
	p.Wait(row(entry))
	narrow(t, p, "#/operations?open="+queued, "#/operations", "#/lanes", "#/jobs", "#/outbox")
	if err := os.Mkdir(filepath.Join(r.dir, "results"), 0o750); err != nil {
		t.Fatal(err)
	}
	p.Click(act(entry, "retry-"+entry))
	p.Wait("!" + row(entry) + " && document.querySelector('.none')?.offsetParent")
	quiet(t, p, false)
}

// narrow checks views in a window of 360 pixels, light and dark: no element extends beyond its edge.
func narrow(t *testing.T, p *browsertest.Page, views ...string) {
	t.Helper()
	p.Size(360, 700)
	colours := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		p.Prefer("prefers-color-scheme", scheme)
		for _, view := range views {
			p.Eval(fmt.Sprintf("location.hash = %q", view), nil)
			p.Wait("document.querySelector('main .row, main .jobs summary, .pane .log')?.offsetParent")
			var wide []string
			p.Eval(`[...document.querySelectorAll('body *')].filter((node) => node.offsetParent && !node.closest('.skip, h1') && node.getBoundingClientRect().right > innerWidth + 1)
				.map((node) => node.outerHTML.slice(0, 200))`, &wide)
			if len(wide) > 0 || p.Text("document.documentElement.scrollWidth > innerWidth") == "true" {
				t.Errorf("%s is wider than the window: %q", view, wide)
			}
		}
		colours[p.Text("getComputedStyle(document.body).backgroundColor")] = true
	}
	if len(colours) != 2 {
		t.Errorf("dark is as light: %v", colours)
	}
	p.Size(1280, 800)
}

// pageWithTheKeyboard does all of it without a mouse, and the focus is always somewhere.
func pageWithTheKeyboard(t *testing.T, b *browsertest.Browser) {
	r := newPageRig(t, "")
	running := r.submit("forever", "{}")
	mended := r.submit("mended", "{}")
	p := r.open(b, "")
	p.Wait(is(running, "running"))
	p.Wait(is(mended, "failed_manual"))
	focused := func(condition string) { t.Helper(); p.Wait("((at) => " + condition + ")(document.activeElement)") }
	inRow := func(id, name string) string {
		return fmt.Sprintf(`at.dataset.act === %q && at.closest('.row').dataset.key === %q && !at.hasAttribute('aria-busy')`,
			name, id)
	}
	in := func(id, name string) string {
		return fmt.Sprintf(`at.dataset.act === %q && at.closest('.pane').dataset.key === %q && !at.hasAttribute('aria-busy')`,
			name, id)
	}

	p.TabTo(fmt.Sprintf("at.matches('.name') && at.closest('.row').dataset.key === %q", mended))
	p.Press("ArrowDown")
	focused(fmt.Sprintf("at.matches('.name') && at.closest('.row').dataset.key === %q", running))
	p.Press("Enter")
	focused("at.matches('.pane .title')")
	p.Wait(openAct(running, "pause"))
	p.TabTo(in(running, "pause"))
	p.Press("Enter")
	p.Wait(is(running, "paused"))
	focused(in(running, "resume")) // focus moved to the button that replaced the pressed one
	p.Press("Space")
	p.Wait(is(running, "running"))
	p.TabTo(in(running, "cancel"))
	p.Press("Enter")
	p.Wait(confirm)
	p.Press("Escape")
	p.Wait("!document.querySelector('dialog[open]')")
	focused(in(running, "cancel"))
	p.Press("Enter")
	p.Wait(confirm)
	p.TabTo("at.dataset.act === 'confirm'")
	p.Press("Enter")
	p.Wait(is(running, "cancelled"))
	p.Wait(openAct(running, "delete"))
	focused(fmt.Sprintf(`at.closest('.pane').dataset.key === %q`, running))
	p.Press("Escape")
	p.Wait("!" + open(running))
	focused(fmt.Sprintf("at.matches('.name') && at.closest('.row').dataset.key === %q", running))

	// A question that wants a word.
	p.TabTo(inRow(mended, "skip"))
	p.Press("Enter")
	focused("at.id === 'ask-reason'")
	p.Type("not needed")
	p.Press("Enter")
	p.Wait(is(mended, "waiting_approval"))
	p.TabTo(inRow(mended, "approve"))
	p.Press("Enter")
	p.Wait(is(mended, "completed"))

	// To the filter, and round through everything to the beginning.
	p.Press("/")
	focused("at.id === 'f-job'")
	p.TabTo("at.id === 'skip'")
	p.Press("Enter")
	focused("at.id === 'main'")
	quiet(t, p, false)
}

// pageWithLogs reads logs that go on, a long one from behind, and text that wants to be markup.
func pageWithLogs(t *testing.T, b *browsertest.Browser) {
	r := newPageRig(t, "")
	const hostile = `<img src=x onerror=document.title='owned'><script>document.title='owned'</script>`
	held := r.submit("held", fmt.Sprintf(`{"title": %q}`, hostile))
	long := r.submit("long", "{}")
	var others []string
	for range 2 {
		others = append(others, r.submit("forever", "{}"))
	}
	p := r.open(b, "#/operations?open="+held+","+long)
	log := func(id string) string { return open(id) + ".querySelector('.log')" }
	p.Wait(says(log(held), "begun "+hostile))
	p.Wait(says(open(held)+".querySelector('.facts')", "onerror=document.title"))
	r.tell("first", "\x1b[31mred\x1b[0m <b>bold</b> </pre></log>")
	p.Wait(says(log(held), "red <b>bold</b> </pre></log>\n"))
	r.tell("second", "the last line")
	p.Wait(says(log(held), "the last line\n"))
	p.Wait(is(held, "completed"))
	p.Wait(says(open(held), "ended, "))
	if text := p.Text("[document.title, document.querySelectorAll('main :is(img, script, b, iframe)').length]"); !strings.HasSuffix(text, "jobdir,0") {
		t.Errorf("text of a log or a parameter became markup: %s", text)
	}

	// A long log shows its end, and earlier lines on request.
	p.Wait(says(log(long), "line 20000 of the long log\n"))
	if text := p.Text(log(long) + ".textContent.length < 600000 && !" + says(log(long), "line 1 of")); text != "true" {
		t.Error("all of a long log is in the page")
	}
	first := p.Text(log(long) + ".textContent.split('\\n')[0]")
	if !strings.HasPrefix(first, "line ") {
		t.Errorf("the log begins with %q, in the middle of a line", first)
	}
	p.Click(openAct(long, "earlier"))
	p.Wait(fmt.Sprintf("%s && %s.textContent.split('\\n')[0] !== %q && /^line \\d+ of/.test(%s.textContent)",
		says(log(long), "\n"+first+"\n"), log(long), first, log(long)))

	// Three are open at most: the oldest makes room.
	for _, id := range others {
		p.Click(row(id) + ".querySelector('.name')")
		p.Wait(open(id))
	}
	p.Wait("document.querySelectorAll('.pane').length === 3 && !" + open(long))
	r.post("/api/v1/bulk", `{"action": "cancel", "filter": {"job": "g/forever"}}`)
	r.tell("long", "end")
	p.Wait("document.querySelectorAll('.row[data-state=cancelled]').length === 2")
	p.Wait(is(long, "completed"))
	quiet(t, p, false)
}

// pageWithAToken types tokens.
func pageWithAToken(t *testing.T, b *browsertest.Browser) {
	const token = "0123456789abcdef-Zz~!"
	r := newPageRig(t, token)
	id := r.submit("forever", "{}")
	p := r.open(b, "")
	input := "document.getElementById('token')"
	wrong := "document.getElementById('token-wrong')"
	try := func(text, answer string) {
		t.Helper()
		p.Eval(input+".value = ''", nil)
		p.Click(input)
		p.Type(text)
		p.Press("Enter")
		p.Wait(says(wrong, answer))
	}
	p.Wait("document.activeElement.id === 'token'")
	try("", "Type the token")
	try("0123456789abcdefgü", "character 18 (ü, U+00FC)")
	try("0123456789 abcdefg", "a space")
	try("0123456789abcdefg", "does not know this token")
	p.Eval(input+".value = ''", nil)
	p.Click(input)
	p.Type(token)
	p.Press("Enter")
	p.Wait(is(id, "running"))
	p.Wait(live)

	// It is kept over a reload, and reads logs and acts.
	p.Eval("globalThis.before = true", nil)
	p.Reload()
	p.Wait("!globalThis.before && " + is(id, "running"))
	p.Click(row(id) + ".querySelector('.name')")
	p.Wait(says(open(id), "goes on"))
	p.Click(openAct(id, "pause"))
	p.Wait(is(id, "paused"))
	p.Click(openAct(id, "cancel"))
	p.Click(confirm)
	p.Wait(is(id, "cancelled"))
	p.Click("document.getElementById('forget')")
	p.Wait(input + " && !" + row(id) + " && sessionStorage.length === 0")
	quiet(t, p, true)
}

// pageOverARestart stays open while the daemon is killed and started again.
func pageOverARestart(t *testing.T, b *browsertest.Browser) {
	r := newPageRig(t, "")
	id := r.submit("held", "{}")
	p := r.open(b, "#/operations?open="+id)
	p.Wait(says(open(id)+".querySelector('.log')", "begun"))
	p.Wait(live)
	r.stop(syscall.SIGKILL)
	p.Wait(says("document.querySelector('#line.lost')", "Connection lost since "))
	p.Wait(says(open(id), "is cut off"))
	p.Click(act(id, "pause"))
	p.Wait(says("document.querySelector('.message.wrong')", "does not answer"))
	r.tell("first", "while nobody looked")
	r.start()
	p.Wait(live)
	other := r.submit("delivered", "{}")
	p.Wait(is(other, "completed"))
	p.Wait(says(open(id)+".querySelector('.log')", "while nobody looked\n"))
	r.tell("second", "and after it")
	p.Wait(says(open(id)+".querySelector('.log')", "and after it\n"))
	p.Wait(is(id, "completed"))
	if n := strings.Count(p.Text(open(id)+".querySelector('.log').textContent"), "while nobody looked"); n != 1 {
		t.Errorf("what was written meanwhile is shown %d times", n)
	}
	quiet(t, p, true)
}
