# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, in front of a real sidecar: one browser for all of it, one step after the other.

With WEIR_PICTURES=FOLDER it leaves pictures of the page there.
"""
import http.server
import json
import os
import pathlib
import socket
import threading

import pytest

from world.apid import Api
from world.browser import CHROMIUM, Browser
from world.sidecar import Pod, policy, wait_for

pytestmark = [pytest.mark.skipif(not CHROMIUM, reason="needs chromium"), pytest.mark.usefixtures("in_order")]
PICTURES = os.environ.get("WEIR_PICTURES")
TOKEN = "T0ken-of-the-page"
# Labels of a lookup, and how the page shows them; names of events as they could be, and likewise.
LABELS = {"<img src=x onerror=self.ran=1>": "<img\\032src=x\\032onerror=self\\.ran=1>.test",
          "<script>self.ran=1</script>": "<script>self\\.ran=1</script>.test", "'\"><b>x": "'\"><b>x.test",
          "\x1b[31mred": "\\027[31mred.test", "gro.\u202egnp": "gro\\.\\226\\128\\174gnp.test"}
RAW = {"<img src=x onerror=self.ran=1>": "<img src=x onerror=self.ran=1>", "\x1b[31mred\x07": "\\u{1b}[31mred\\u{7}",
       "gro.\u202egnp.exe": "gro.\\u{202e}gnp.exe", "\u0430pi.github.test": "\\u{430}pi.github.test", "a\u200bb": "a\\u{200b}b"}

# The ratio of each shown text's color to what is behind it, where that is below 4.5 (WCAG AA).
FAINT = """(() => {
	const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b; };
	const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
		if (!c.startsWith('rgba') || c.endsWith(', 1)')) return c; } return 'rgb(255,255,255)'; };
	const found = [];
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || e.disabled || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [light(getComputedStyle(e).color), light(behind(e))], r = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (r < 4.5) found.push(e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 30) + ' ' + r.toFixed(2));
	}
	return found;
})()"""


@pytest.fixture(scope="module")
def pod(world):
    with Pod(world) as p:
        yield p


@pytest.fixture(scope="module")
def names(world):
    """A name that is open from the start, and three that have to be asked for."""
    return [world.site(f"page-{world.number()}.test") for _ in range(4)]


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def side(pod, names, state):
    rules = policy(f"allow {names[0].name}", {"action": "deny", "target": "*.gist.test", "comment": "пример"})
    return pod.sidecar("--state-dir", state, "--sandbox-id", "agent-7", rules=rules, token=TOKEN)


@pytest.fixture(scope="module")
def page(side, pod, tmp_path_factory):
    with Browser(pod.ns, tmp_path_factory.mktemp("browser")) as b:
        b.look(1280, 900, "light")
        b.open("http://127.0.0.1:18080/ui/")
        yield b


def lookup(pod, *names):
    """Ask for names whose labels may be any bytes, as one label and below .test."""
    with pod.ns.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(50)
        for name in names:
            label = name.encode()
            sock.sendto(b"\x12\x34\x01\x00\x00\x01" + bytes(6) + bytes([len(label)]) + label + b"\x04test\x00\x00\x01\x00\x01",
                        ("127.0.0.1", 53))
            sock.recv(4096)


def shown(page, selector):
    return page.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)")


def log_in(page, token, by_key=True):
    page.wait("!document.getElementById('login').hidden && document.activeElement.id === 'token'")
    page.type(token)
    page.key("Enter")


def test_1_a_wrong_token_shows_nothing(page, names, side):
    for wrong in ("guess", "", "T0ken-of-the-pagf"):
        log_in(page, wrong)
        if wrong:
            page.wait("document.getElementById('login-fault').textContent.includes('not take')")
    text = page.text()
    assert "asks for its token" in text
    for secret in (names[0].name, "agent-7", "guarded", "Policy in force"):
        assert secret not in text
    assert shown(page, "#facts dd, #policy-list td, #events-list td, #sandbox") == [""]
    assert page.js("document.getElementById('all').hidden && !document.cookie && !localStorage.length && "
                   "!sessionStorage.length")


def test_2_the_right_one_shows_the_state(page, names):
    log_in(page, TOKEN)
    page.wait("document.getElementById('state').textContent === 'guarded in full'")
    page.wait(f"document.getElementById('policy-list').innerText.includes({names[0].name!r})")
    assert shown(page, "#sandbox") == ["agent-7"] and "What no rule names is denied" in page.text()
    assert "пример" in page.text() and "Nothing waits for a decision" in page.text()
    assert page.js("document.querySelector('#token').value") == ""
    assert page.wait("document.getElementById('link').textContent === 'live'")


def test_3_a_denial_shows_up_as_it_happens(page, pod, names):
    page.js("self.said = []; new MutationObserver(() => said.push(document.getElementById('said').textContent))"
            ".observe(document.getElementById('said'), {childList: true})")
    assert not pod.probe(["dns", names[1].name]).addresses
    page.wait(f"[...document.querySelectorAll('#events-list tr')].some(r => r.innerText.includes('deny') && "
              f"r.innerText.includes({names[1].name!r}))")
    page.wait(f"document.getElementById('denies-list').innerText.includes({names[1].name!r})")
    page.wait(f"said.some(s => s.includes({names[1].name!r}))")  # to who can't see it


def is_text(page, texts):
    """Each of these is shown, letter by letter, and nothing of them was read as anything else."""
    for text in texts:
        for part in ("events", "denies"):
            page.wait(f"[...document.querySelectorAll('#{part}-list .name')].some(e => e.textContent === {json.dumps(text)})")
    assert page.js("self.ran") is None and page.js("document.querySelectorAll('main :is(script, img, b, iframe)').length") == 0
    assert not page.js("/[^\\x20-\\x7e]/.test([...document.querySelectorAll('.name')].map(e => e.textContent).join(''))")


def test_4_what_a_sandbox_made_up_stays_text(page, pod):
    lookup(pod, *LABELS)
    is_text(page, LABELS.values())
    page.wait("document.querySelectorAll('#tasks > li').length >= 1")
    assert page.js("document.querySelectorAll('#tasks :is(script, img, b, iframe)').length") == 0


def test_5_groups_and_filters(page, pod, names):
    assert pod.probe(["tcp", names[2].v4, 443]).error
    page.wait(f"document.getElementById('events-list').innerText.includes('{names[2].v4}:443/tcp')")
    for kind, wanted in (("address", f"{names[2].v4}:443/tcp"), ("rule", "no rule: the default"), ("name", names[1].name)):
        page.click(f"input[name=by][value={kind}]")
        page.wait(f"document.querySelector('#denies-list .name').closest('table').innerText.includes({json.dumps(wanted)})")
    page.js("document.getElementById('events-q').focus()")
    page.type(names[2].v4)
    page.wait("document.querySelectorAll('#events-list tbody tr').length === 1")
    page.js("(e => { e.value = ''; e.dispatchEvent(new Event('input')); })(document.getElementById('events-q'))")
    page.js("(e => { e.value = 'change'; e.dispatchEvent(new Event('change')); })(document.getElementById('events-action'))")
    page.wait("!document.getElementById('events-list').innerText.includes('deny')")
    page.js("(e => { e.value = ''; e.dispatchEvent(new Event('change')); })(document.getElementById('events-action'))")


def task(name):
    return f"document.querySelector('#tasks button[aria-label=\"Review {name}\"]')"


def test_6_accepted_with_the_keyboard_alone_and_reached(page, pod, side, names):
    name = names[1].name
    page.wait("!!" + task(name))
    page.js("document.getElementById('who').focus()")
    page.type("alice")
    page.tab_to(f"e.getAttribute('aria-label') === 'Review {name}'")
    page.key("Enter")
    rule = f'+ {{"action":"allow","target":"{name}"}}'
    page.wait(f"document.querySelector('#tasks .diff')?.innerText.includes({json.dumps(rule)})")
    assert json.loads(side.get("/policy").text)["policy"]["egress"][0]["target"] == names[0].name
    page.picture(pathlib.Path(PICTURES) / "review.png") if PICTURES else None
    page.tab_to(f"e.getAttribute('aria-label') === 'Allow {name} always'", 5)
    page.key("Enter")
    page.wait(f"!{task(name)} && document.getElementById('policy-list').innerText.includes({name!r})")
    assert page.js("document.activeElement !== document.body")  # the keyboard isn't lost
    assert side.get("/policy").json()["policy"]["egress"][0] == {"action": "allow", "target": name}
    assert pod.probe(["dns", name]).addresses == [names[1].v4]
    page.wait("!document.getElementById('decided').hidden")
    page.click("#decided summary")
    page.wait(f"document.getElementById('decided-list').innerText.includes({name!r})")
    decided = shown(page, "#decided-list td")
    assert decided[1:4] == [name, "accepted", "alice"] and decided[0]
    assert [t["who"] for t in side.get("/review?state=accepted").json()["tasks"]] == ["alice"]


def test_7_dismissed(page, pod, side, names):
    name = names[3].name
    pod.probe(["dns", name])
    page.wait("!!" + task(name))
    page.js(f"{task(name)}.click()")
    page.wait(f"document.querySelector('#tasks button[aria-label=\"Deny {name}\"]')?.checkVisibility()")
    page.click(f"#tasks button[aria-label='Deny {name}']")
    page.wait(f"!{task(name)}")
    wait_for(lambda: [t["who"] for t in side.get("/review?state=dismissed").json()["tasks"]] == ["alice"])
    assert not pod.probe(["dns", name]).addresses
    assert name not in side.get("/policy").text


def test_8_every_control_has_a_name_and_every_text_contrast(page):
    controls = list(page.names("button", "textbox", "searchbox", "combobox", "radio", "checkbox", "link"))
    assert len(set(controls)) >= 9 and all(name.strip() for _, name in controls), controls
    assert page.js("document.querySelectorAll('h1').length") == 1 and page.js("document.documentElement.lang") == "en"
    for scheme in ("light", "dark"):
        page.look(1280, 900, scheme)
        assert page.js(FAINT) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800, 360])
def test_9_it_fits(page, width, scheme):
    page.look(width, 900, scheme)
    page.js("scrollTo(0, 0)")
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && "
                   "!e.closest('.unseen, thead') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))") == []
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    assert (int(ground.split("(")[1].split(",")[0]) > 128) == (scheme == "light")
    if PICTURES:
        page.js("document.querySelectorAll('.scroll').forEach(e => e.scrollTo(0, 0))")
        page.picture(pathlib.Path(PICTURES) / f"page-{width}-{scheme}.png")


def test_A_pure_parts(page):
    parsed = page.js("""import('/ui/api.js').then(({ parser }) => {
        const got = [], read = parser((id, data) => got.push([id, data]), c => got.push(c));
        for (const c of ': hello\\n\\nid: 7-1\\nevent: deny\\nda') read(c);
        read('ta: {"a":1}\\n\\nid: 7-2\\ndata: x\\ndata: y\\n\\n' + 'z'.repeat(200000));
        read('\\ndata: w\\n\\n');
        return got; })""")
    assert parsed == ["hello", ["7-1", '{"a":1}'], ["7-2", "x\ny"], ["7-2", "w"]]
    texts = page.js("import('/ui/text.js').then(t => [t.literal('a\\u{1f600}\\ud800'), t.plain('é\\u200f\\u2028'), t.remote('::1', 53, 'udp'),"
                    " t.remote('1.2.3.4', null, 'icmp'), t.process({uid: 0}), t.process({command: 'a\\u0007', pid: 4}), t.clock('x')])")
    assert texts == ["a\\u{1f600}\\u{d800}", "é\\u{200f}\\u{2028}", "[::1]:53/udp", "1.2.3.4/icmp", "user 0", "a\\u{7} (4)", ""]


def test_B_the_stream_comes_back_and_nothing_is_twice(page, pod, side, names):
    rows = page.js("document.getElementById('events-n').textContent")
    assert rows
    old = side.kill_child("control")
    page.wait("document.getElementById('link').textContent.startsWith('not live')")
    side.wait_replaced("control", old)
    page.wait("document.getElementById('link').textContent === 'live, some events were missed'")
    pod.probe(["dns", "back." + names[3].name])
    page.wait(f"[...document.querySelectorAll('#events-list .name')].filter(e => e.textContent === 'back.{names[3].name}').length === 1")


def test_C_nothing_was_refused_to_the_page(page, side):
    """No error of a script, no breach of the content policy, on all of the ways above."""
    assert page.all_faults() == [] and page.js("self.ran") is None
    assert page.js("performance.getEntriesByType('resource').every(e => e.name.startsWith('http://127.0.0.1:18080/'))")


def test_D_bytes_of_any_kind_and_no_token(page, pod):
    """An API that anybody may read: it says that it changes nothing, and what comes through it is text."""
    with pod.ns.entered(), Api("id=<b>id\u202e", token=None) as api:
        page.open(f"http://127.0.0.1:{api.port}/ui/")
        page.wait("document.getElementById('link').textContent === 'live'")
        for name in RAW:
            api.event(name)
        api.tell("degrade", "land<b>lock", "<img src=x onerror=self.ran=1>\u202e")
        is_text(page, RAW.values())
        page.wait("document.getElementById('degradations').textContent.includes('land<b>lock: <img src=x onerror=self.ran=1>\\\\u{202e}')")
        assert shown(page, "#sandbox") == ["<b>id\\u{202e}"] and shown(page, "#state") == ["guarded in part"]
        assert "can wait here: events are not stored" in page.text() and page.js("document.getElementById('login').hidden")
        api.tell("flood", 100000)  # more than any stream can follow
        api.event("last.test")
        page.wait("[...document.querySelectorAll('#events-list .name')].some(e => e.textContent === 'last.test')")
        page.wait("document.getElementById('link').textContent === 'live, some events were missed'")
        page.wait("document.getElementById('denies-n').textContent.replace(',', '') >= 1000")
        assert page.js("document.querySelectorAll('*').length") < 8000 and page.all_faults() == []
        page.open("about:blank")


def test_G_what_nobody_looks_at_holds_nothing(page, pod):
    """A browser has six connections to a server for all its tabs, and keeps pages that were left, to go back to them."""
    with pod.ns.entered(), Api(token=None) as api:
        for _ in range(8):
            page.open(f"http://127.0.0.1:{api.port}/ui/")
            page.wait("document.getElementById('link').textContent.startsWith('live')")
            page.open("about:blank")
        page.js("setTimeout(() => history.back())")  # the page that goes can't answer
        page.wait("location.pathname === '/ui/' && document.getElementById('link').textContent.startsWith('live')")
        # another tab is in front
        page.js("""import('/ui/api.js').then(() => {
            self.timeout = setTimeout;
            self.setTimeout = (f, ms, ...more) => timeout(f, ms === 10000 ? 1 : ms, ...more);
            Object.defineProperty(document, 'hidden', {value: true, configurable: true});
            document.dispatchEvent(new Event('visibilitychange')); })""")
        page.wait("document.getElementById('link').textContent === 'not live: nobody looks'")
        api.event("meanwhile.test")
        page.js("delete document.hidden, document.dispatchEvent(new Event('visibilitychange'))")
        page.wait("[...document.querySelectorAll('#events-list .name')].some(e => e.textContent === 'meanwhile.test')")
        assert page.all_faults() == []
        page.open("about:blank")


class Evil(http.server.BaseHTTPRequestHandler):
    """Another site: a page that may do whatever pages may."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title><iframe name=f></iframe>")

    def log_message(self, *args):
        pass


def test_E_pages_of_other_sites_get_nothing(page, pod):
    """In front of an API that is open to whoever reaches it, with a browser that does."""
    rule = '{"egress":[{"action":"allow","target":"evil.test"}]}'
    form = """(() => { const f = document.createElement('form'); Object.assign(f, {method: 'POST', enctype: 'text/plain', target: 'f',
        action: URL_}); f.append(Object.assign(document.createElement('input'), {name: '{"x":"', value: '","egress":[]}'}));
        document.body.append(f); f.submit(); })()"""
    ask = "fetch(URL_, {method: METHOD, mode: MODE, body: BODY}).then(r => r.status + ' ' + r.type, e => 'failed')"

    def fill(text, **values):
        for key, value in values.items():
            text = text.replace(key, "undefined" if value is None else json.dumps(value))
        return text

    with pod.ns.entered(), Api("open=1", token=None) as api:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        policy_url = f"{api.url}/policy"
        # what it can do: the API's own page may
        page.open(f"{api.url}/ui/")
        assert page.js(fill(ask, URL_=policy_url, METHOD="POST", MODE="cors", BODY=rule)) == "200 basic"
        assert api.json("/policy")["policy"]["egress"] and api.log()
        for site in (f"http://127.0.0.1:{server.server_port}/", f"http://localhost:{server.server_port}/"):
            page.open(site)
            page.js(fill(form, URL_=policy_url))
            assert page.js(fill(ask, URL_=policy_url, METHOD="POST", MODE="no-cors", BODY="")) == "failed"
            for method in ("GET", "POST", "PATCH", "DELETE"):
                assert page.js(fill(ask, URL_=policy_url, METHOD=method, MODE="cors", BODY=None if method == "GET" else "[]")) == "failed"
            assert page.js(f"new Promise(r => {{ const s = new EventSource('{api.url}/events'); s.onerror = () => r('failed'); "
                           "s.onopen = () => r('open'); })") == "failed"
            page.js(f"document.querySelector('iframe').src = '{api.url}/ui/'")  # it mustn't be framed
            page.wait("self.frames[0].length === 0")
        page.open(f"http://pointed.test:{api.port}/ui/")
        page.wait("!document.getElementById('trouble').hidden")
        assert "by its address, as localhost" in page.text() and page.js("document.getElementById('all').hidden")
        for method in ("GET", "POST", "DELETE"):
            asked = page.js(fill(ask, URL_="/policy", METHOD=method, MODE="cors", BODY=None if method == "GET" else ""))
            assert asked == "403 basic", method
        assert page.js("fetch('/policy').then(r => r.text())").startswith("forbidden")
        server.shutdown()
        assert api.json("/policy")["policy"]["egress"] == [{"action": "allow", "target": "evil.test"}] and api.log() == []
        assert api.metric("api_forbidden_total") >= 19  # they all arrived
        page.open("about:blank")
        page.faults.clear()  # the other sites'


def test_F_what_nobody_may_decide_and_what_was_closed(page, pod, side, names, state):
    """Another sidecar takes the place of the first: without a token, with a limit to what is refused."""
    side.stop()
    rules = policy(f"allow {names[0].name}", on_denies={"count": 3, "window": "1m", "action": "stop"})
    again = pod.sidecar("--state-dir", state, "--sandbox-id", "agent-7", rules=rules, token=None)
    page.open("http://127.0.0.1:18080/ui/")
    page.wait("!!document.querySelector('#tasks button')")
    page.click("#tasks button")
    page.wait("document.getElementById('tasks').innerText.includes('This API is read-only')")
    assert page.js("[...document.querySelectorAll('#tasks .panel button')].every(b => !b.checkVisibility())")
    assert page.js("document.querySelectorAll('#tasks .diff li').length") == 1
    pod.probe(*[["dns", f"n{i}.{names[3].name}"] for i in range(6)])
    page.wait("document.getElementById('state').textContent === 'closed'")
    page.wait("document.getElementById('degradations').innerText.includes('until somebody sets a policy')")
    page.picture(pathlib.Path(PICTURES) / "closed.png") if PICTURES else None
    assert again.get("/status").json()["closed"] and page.all_faults() == []
