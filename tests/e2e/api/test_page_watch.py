# SPDX-License-Identifier: Apache-2.0
"""What people look at first: the page of a daemon whose store knows a week, with sandboxes under attack and one that is quiet.
One browser for all of it, one step after the other.

With WEIR_PICTURES=FOLDER it leaves pictures of the page there.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess

import pytest

from world.browser import CHROMIUM, Browser
from world.daemon import Host
from world.sidecar import Pod, policy, request, wait_for
from world.store import Store

pytestmark = [pytest.mark.skipif(not CHROMIUM, reason="needs chromium"), pytest.mark.usefixtures("in_order")]
PICTURES = os.environ.get("WEIR_PICTURES")
AXE = pathlib.Path("/usr/lib/node_modules/axe-core/axe.min.js")
PORT = 8080
HOUR = 3600
RULES = policy({"action": "allow", "target": "api.github.test", "ports": [443], "comment": "REST API"},
               {"action": "deny", "target": "*.gist.test", "comment": "no uploads"}, "allow **.pypi.test")
HOSTILE = "<img src=x onerror=self.ran=1>\x1b[2J\u202e"


def a_week(folder):
    """What happened in a week, by the hour and in the last hour by the minute; always the same."""
    chance = random.Random(7)
    with Store(folder) as store:
        ago = [h * HOUR + chance.randrange(HOUR) for h in range(1, 168)] + [m * 60 for m in range(1, 60)]
        for n, at in enumerate(ago):
            store.drain()  # what is equal within a second would be one
            busy = 1 + 8 * (n % 24 in range(9, 18))
            store.put(chance.choice(["files.pypi.test", "api.github.test", "pypi.test"]), sandbox=f"agent-{n % 4}", action="allow",
                      packets=busy * chance.randrange(10, 900), ago=at, address="198.51.100.9", port=443)
            if n % 3 == 0:
                store.put(sandbox=f"agent-{n % 2}", address=f"203.0.113.{1 + n % 5}", port=(443, 22, 8333)[n % 3], ago=at,
                          packets=busy * chance.randrange(1, 40), command="curl")
            if n % 4 == 0:
                store.put(chance.choice(["pastebin.test", "telemetry.tool.test", "exfil.evil.test"]), sandbox=f"agent-{n % 2}",
                          packets=busy * chance.randrange(1, 9), ago=at, command="python3")
            if n % 29 == 0:
                store.put("noisy.test", sandbox="agent-0", action="limit", packets=chance.randrange(1, 30), ago=at)
        store.put(HOSTILE.encode(), sandbox="agent-1", packets=3, ago=120)
        store.drain()


@pytest.fixture(scope="module")
def guarded(world):
    """(daemon, host, [pods]): four sandboxes, behind a port of the host's loopback."""
    with Host(world) as host:
        state = host.folder / "state"
        a_week(state)
        daemon = host.daemon("--state-dir", state)
        pods = [Pod(world) for _ in range(4)]
        try:
            for i, pod in enumerate(pods):
                daemon.attach(f"agent-{i}", pod)
                reply = daemon.call("POST", f"/sandboxes/agent-{i}/policy", RULES)
                assert reply.status == 200, reply
            socat = subprocess.Popen(host.ns.command("socat", f"TCP-LISTEN:{PORT},bind=127.0.0.1,fork,reuseaddr",
                                                     f"UNIX-CONNECT:{daemon.socket}"), stderr=subprocess.DEVNULL)
            wait_for(lambda: answers(host))
            yield daemon, host, pods
            socat.kill()
            socat.wait()
        finally:
            for pod in pods:
                pod.close()


def answers(host):
    try:
        return request(host.ns, ("127.0.0.1", PORT), "GET", "/ui/").status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def page(guarded, tmp_path_factory):
    with Browser(guarded[1].ns, tmp_path_factory.mktemp("browser")) as b:
        b.look(1280, 900, "light")
        b.open(f"http://localhost:{PORT}/ui/")
        yield b


def pictures(page, what):
    if not PICTURES:
        return
    for width, height in ((390, 844), (1280, 900), (2560, 1300)):
        for scheme in ("light", "dark"):
            page.look(width, height, scheme)
            page.js("scrollTo(0, 0), new Promise(r => setTimeout(r, 400))")
            page.picture(pathlib.Path(PICTURES) / f"{what}-{width}-{scheme}.png")
            page.picture(pathlib.Path(PICTURES) / f"{what}-{width}-{scheme}.webp")
    page.look(1280, 900, "light")


def set_value(page, element, value, event="input"):
    page.js(f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('{event}')); }})(document.getElementById('{element}'))")


def numbers(page, selector):
    return [int(t.replace(",", "")) for t in page.js(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")]


def test_1_the_tile_says_what_was_refused_in_a_day(page, guarded):
    page.wait("document.getElementById('link').textContent === 'live' && document.querySelectorAll('#tile-addresses svg').length > 0")
    guarded[2][0].probe(*[["dns", f"x{i}.exfil.evil.test"] for i in range(4)], ["tcp", "203.0.113.9", 443])
    day = guarded[0].call("GET", "/top?by=address&since=24h&limit=8").json()["top"]
    page.wait("document.querySelectorAll('#tile-addresses svg').length >= 5")
    page.wait("document.getElementById('tile-addresses').innerText.includes('203.0.113.9')")  # it has just happened
    assert [t["key"] for t in day][:3] == page.js("[...document.querySelectorAll('#tile-addresses .what')].map(e => e.innerText)")[:3]
    assert numbers(page, "#tile-addresses .n") == sorted(numbers(page, "#tile-addresses .n"), reverse=True)
    assert numbers(page, "#tile-n")[0] > 1000 and "the day before" in page.js("document.getElementById('tile-trend').innerText")
    assert page.js("document.querySelectorAll('#tile-spark path').length") == 2
    # as text, whatever it is
    assert "<img src=x onerror=self.ran=1>\\u{1b}[2J\\u{202e}" in page.js("document.getElementById('tile-names').innerText")
    assert page.js("self.ran") is None and page.js("document.querySelectorAll('main img').length") == 0


def test_2_who_is_red_and_who_talks(page):
    page.wait("document.querySelectorAll('#sandboxes-list .denied').length === 2")
    assert page.js("[...document.querySelectorAll('#sandboxes-list a')].slice(0, 2).map(e => e.innerText).sort()") == ["agent-0", "agent-1"]
    page.wait("document.querySelectorAll('#sandboxes-list .fine').length === 2")
    assert "4, 2 red" in page.js("document.getElementById('sandboxes-n').innerText")
    page.wait("document.querySelectorAll('#talkers-list svg').length === 3")
    assert "MB" in page.js("document.querySelector('#talkers-list .n').innerText")
    page.click("input[name=talk][value=sandbox]")
    page.wait("document.querySelector('#talkers-list a')?.innerText.startsWith('agent-')")
    page.click("input[name=talk][value=destination]")
    pictures(page, "all")
    # a store that doesn't answer turns nobody green
    page.js("""(() => { const real = window.fetch; window.tops = 0;
        window.fetch = (url, ...rest) => String(url).includes("top?of=deny&by=sandbox") ? (window.tops++, Promise.resolve(new Response("busy", { status: 503 }))) : real(url, ...rest);
        window.restore = () => { window.fetch = real; }; })()""")
    page.wait("window.tops > 0 && document.getElementById('sandboxes-note').innerText.includes('did not answer')")
    assert page.js("document.querySelectorAll('#sandboxes-list .denied').length") == 2
    page.js("window.restore()")
    page.wait("!document.getElementById('sandboxes-note').innerText")


def test_3_drag_to_zoom_and_the_events_follow(page):
    page.click("input[name=range][value=day]")
    page.wait("document.getElementById('chart-text').innerText.split('denied')[0].includes(',')")
    box = page.js("(b => [b.left, b.top, b.width, b.height])(document.getElementById('chart').getBoundingClientRect())")
    page.js("document.getElementById('chart').scrollIntoView({block: 'center'})")
    box = page.js("(b => [b.left, b.top, b.width, b.height])(document.getElementById('chart').getBoundingClientRect())")
    y, at = box[1] + box[3] / 2, [box[0] + box[2] * part for part in (.3, .5)]
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=y)
    assert "denied" in page.js("document.getElementById('chart-at').innerText")
    page.call("Input.dispatchMouseEvent", type="mousePressed", x=at[0], y=y, button="left", clickCount=1)
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[1], y=y, button="left")
    page.call("Input.dispatchMouseEvent", type="mouseReleased", x=at[1], y=y, button="left", clickCount=1)
    page.wait("!document.getElementById('now').hidden && document.getElementById('events-note').innerText.startsWith('From the store')")
    page.wait("document.querySelectorAll('#events-list tbody tr').length > 2")
    since, until = page.js("import('/ui/activity.js').then(a => { const s = a.span(); return [s.since, s.until]; })")
    assert 4 * HOUR < (until - since) / 1000 < 6 * HOUR
    times = page.js("[...document.querySelectorAll('#events-list time')].map(e => Date.parse(e.dateTime))")
    assert all(since <= t < until for t in times) and times == sorted(times, reverse=True)
    page.js("document.getElementById('chart-more').open = true")
    page.wait("document.querySelectorAll('#chart-table tbody tr').length > 2")  # for who doesn't see it
    page.js("document.getElementById('chart-more').open = false")
    # the same with the keyboard
    page.js("document.getElementById('wider').focus()")
    page.key("Enter")
    page.wait(f"import('/ui/activity.js').then(a => a.span().until - a.span().since > {1.5 * (until - since)})")
    set_value(page, "events-action", "limit", "change")
    page.wait("[...document.querySelectorAll('#events-list .tag')].every(e => e.innerText === 'limit')")
    set_value(page, "events-action", "", "change")
    page.click("#now")
    page.wait("document.getElementById('now').hidden && document.getElementById('events-pause').checkVisibility()")


def test_4_a_name_leads_to_its_events(page):
    page.click("#tile-names button")
    page.wait("document.getElementById('events-q').value !== '' && document.querySelectorAll('#events-list tbody tr').length > 0")
    page.click("#events-older")  # pages of the store
    page.wait("document.getElementById('events-note').innerText.startsWith('From the store')")
    name = page.js("document.getElementById('events-q').value")
    assert page.js(f"[...document.querySelectorAll('#events-list .name')].every(e => e.innerText.includes({name!r}))")
    page.click("#events-newer")
    set_value(page, "events-q", "")
    page.wait("document.getElementById('events-pause').checkVisibility()")


def test_5_why(page):
    page.wait("!!document.querySelector('#events-list button')")
    page.js("document.querySelector('#events-list button').focus()")
    page.key("Enter")
    page.wait("document.getElementById('why-text').innerText.includes('rule: no rule matches; the default is deny')")
    assert page.js("document.activeElement.id") == "why-h" and "--allow" in page.js("document.getElementById('why').innerText")
    pictures(page, "why")
    page.key("Escape")
    page.wait("!document.getElementById('why').open")
    # what a sandbox made up can't be asked about in a way that breaks anything
    set_value(page, "events-q", "onerror")
    page.click("#events-older")
    page.wait("document.querySelectorAll('#events-list button').length === 1 && document.querySelector('#events-list .name').innerText.includes('onerror')")
    page.click("#events-list button")
    page.wait("document.getElementById('why-fault').innerText.includes('is not')")
    assert page.js("self.ran") is None
    page.click("#why-close")
    set_value(page, "events-q", "")
    page.click("#events-newer")


def test_6_one_sandbox_with_grants(page, guarded):
    grants = [{"action": "allow", "target": "fast.test", "for": "10m"}, {"action": "allow", "target": "slow.test", "for": "2h"}]
    assert guarded[0].call("PATCH", "/sandboxes/agent-0/policy", json.dumps(grants)).status == 200
    page.wait("!!document.querySelector('#grants-list') && document.querySelectorAll('#grants-list li').length === 2")  # of all
    page.click("#sandboxes-list a[href='#s=agent-0']")
    page.wait("document.querySelectorAll('#policy-list tbody tr').length === 5 && document.querySelectorAll('#grants-list li').length === 2")
    first = page.wait("document.querySelector('#grants-list .n').innerText")
    assert "min" in first and first.endswith("left")
    page.wait(f"document.querySelector('#grants-list .n').innerText !== {first!r}")  # it counts
    page.wait("document.querySelectorAll('#tile-addresses svg').length > 0 && document.querySelectorAll('#talkers-list svg').length > 0")
    pictures(page, "one")


def test_7_allowed_for_ten_minutes(page, guarded, world):
    """In this sandbox, and in no other."""
    site, (one, another) = world.site(f"page-{world.number()}.test"), guarded[2][:2]
    name = site.name
    assert not one.probe(["dns", name]).addresses
    page.wait(f"!!document.querySelector('#tasks button[aria-label=\"Review {name}\"]')")
    page.click(f"#tasks button[aria-label='Review {name}']")
    page.wait(f"document.querySelector('#tasks button[aria-label=\"Allow {name} for 10 minutes\"]')?.checkVisibility()")
    page.click(f"#tasks button[aria-label='Allow {name} for 10 minutes']")
    page.wait(f"document.getElementById('grants-list').innerText.includes({name!r})")
    rules = guarded[0].call("GET", "/sandboxes/agent-0/policy").json()["policy"]["egress"]
    assert rules[0]["target"] == name and "until" in rules[0]
    assert one.probe(["dns", name]).addresses == [site.v4] and not another.probe(["dns", name]).addresses


def test_7_what_asks_waits_on_top(page, guarded, world):
    """With the time that is left, and goes on when it is granted there."""
    site, (daemon, _, pods) = world.site(f"page-{world.number()}.test"), guarded
    rules = policy(f"ask {site.name}", verify="tls", limits={"ask_timeout": 300})
    assert daemon.call("POST", "/sandboxes/agent-2/policy", rules).status == 200
    page.js("location.hash = '#s=agent-2'")
    page.wait("document.getElementById('policy-list').innerText.includes('ask') && document.getElementById('link').textContent === 'live'")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(pods[2].probe, ["connect", site.name, 80, f"GET / HTTP/1.1\r\nHost: {site.name}\r\nConnection: close\r\n\r\n"])
        page.wait("document.querySelector('#tasks > li.asks .wait')?.innerText.endsWith('left')")
        assert "min" in page.js("document.querySelector('#tasks .wait').innerText") and not client.done()
        page.click(f"#tasks button[aria-label='Review {site.name}']")
        page.wait(f"document.querySelector('#tasks button[aria-label=\"Allow {site.name} for 10 minutes\"]')?.checkVisibility()")
        page.click(f"#tasks button[aria-label='Allow {site.name} for 10 minutes']")
        assert "200 OK" in client.result(60).data
    page.js("location.hash = '#s=agent-0'")
    page.wait("document.querySelectorAll('#policy-list tbody tr').length === 6")


def test_8_another_policy_is_checked_compared_and_applied(page, guarded):
    before = guarded[0].call("GET", "/sandboxes/agent-0/policy").text
    page.js("document.getElementById('edit').focus()")
    page.key("Enter")
    page.wait("document.getElementById('editor-faults').innerText === 'None.' && document.activeElement.id === 'editor-text'")
    assert page.js("document.getElementById('editor-apply').disabled")  # nothing differs yet
    text = page.js("document.getElementById('editor-text').value")
    set_value(page, "editor-text", text.replace('"*.gist.test"', '"a..b"').replace('"api.github.test"', '"10.0.0.0/33"'))
    page.wait("document.querySelectorAll('#editor-faults li.bad').length === 2")
    assert page.js("document.getElementById('editor-apply').disabled")
    if PICTURES:
        page.js("document.getElementById('policy-h').scrollIntoView()")
        page.picture(pathlib.Path(PICTURES) / "editor-1280-light.png")
    page.click("#editor-faults button")
    assert "10.0.0.0/33" in page.js("(e => e.value.slice(e.selectionStart).split('\\n')[0])(document.getElementById('editor-text'))")
    set_value(page, "editor-text", "{" + text)
    page.wait("document.getElementById('editor-diff').innerText.includes('JSON')")
    good = text.replace('"api.github.test"', '"api.gitlab.test"')
    set_value(page, "editor-text", good)
    page.wait("!document.getElementById('editor-apply').disabled")
    lines = page.js("[...document.querySelectorAll('#editor-diff li')].map(e => e.innerText)")
    assert [line[:2] for line in lines] == ["- ", "+ "] and "api.github.test" in lines[0] and "api.gitlab.test" in lines[1]
    assert guarded[0].call("GET", "/sandboxes/agent-0/policy").text == before
    # somebody else was faster
    assert guarded[0].call("PATCH", "/sandboxes/agent-0/policy", '[{"action":"deny","target":"other.test"}]').status == 200
    page.click("#editor-apply")
    page.wait("document.getElementById('editor-fault').innerText.includes('changed meanwhile')")
    page.click("#editor-cancel")
    page.click("#edit")
    page.wait("document.getElementById('editor-text').value.includes('other.test')")
    text = page.js("document.getElementById('editor-text').value")
    set_value(page, "editor-text", text.replace('"api.github.test"', '"api.gitlab.test"'))
    page.wait("!document.getElementById('editor-apply').disabled")
    page.click("#editor-apply")
    page.wait("document.getElementById('editor').hidden && document.getElementById('policy-list').innerText.includes('api.gitlab.test')")
    rules = guarded[0].call("GET", "/sandboxes/agent-0/policy").json()["policy"]["egress"]
    assert "api.gitlab.test" in [r["target"] for r in rules] and "other.test" in [r["target"] for r in rules]


def test_9_differences_are_of_lines_in_order(page):
    made = page.js("""import('/ui/editor.js').then(({ difference: d }) => [d(['a', 'b', 'c'], ['b', 'a', 'c']), d([], ['x']), d(['x'], []),
        d(['same'], ['same']), d('abcdefg'.split(''), 'abXdefYg'.split(''))].map(l => l.map(p => p.join('')).join(' ')))""")
    assert made == ["-a +a", "+x", "-x", "", "-c +X +Y"]


def test_A_it_fits_and_fills(page):
    for width, height in ((390, 844), (1280, 900), (2560, 1300)):
        page.look(width, height, "light")
        page.js("new Promise(r => setTimeout(r, 300))")
        assert page.js("document.documentElement.scrollWidth") <= width
        if width > 600:  # cards reach the right edge, and every column its end
            assert page.js("Math.max(...[...document.querySelectorAll('.card')].map(e => e.getBoundingClientRect().right))") > width - 20
        ends = page.js("[...document.querySelectorAll('.column')].map(c => [Math.round(c.getBoundingClientRect().bottom), "
                       "Math.round(Math.max(...[...c.children].filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect().bottom)))])")
        assert all(abs(column - card) <= 1 for column, card in ends), (width, ends)
        if width == 2560:
            assert max(c for c, _ in ends) - min(c for c, _ in ends) <= 1, ends
    page.look(1280, 900, "light")


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core (npm install --global axe-core)")
def test_B_axe_finds_nothing(page):
    page.click("#edit")  # with as much as possible on it
    page.wait("document.getElementById('editor-faults').innerText === 'None.'")
    page.js("document.getElementById('chart-more').open = true")
    page.call("Runtime.evaluate", expression=AXE.read_text())  # the protocol's script: no part of the page
    run = ("axe.run(document, {resultTypes: ['violations'], rules: {'color-contrast': {enabled: self.withColors}}})"
           ".then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))")
    set_value(page, "events-q", "x1.exfil")  # few rows are as good as many
    page.js("self.withColors = true")
    assert page.js(run) == []
    page.js("self.withColors = false")
    page.click("#editor-cancel")
    page.click("#events-list button")
    page.wait("document.getElementById('why-text').innerText.includes('rule:')")
    assert page.js(run) == []
    page.click("#why-close")
    page.look(390, 844, "dark")
    page.click("#back")
    page.wait("document.querySelectorAll('#sandboxes-list .square').length === 4")
    assert page.js(run) == []


def test_C_who_is_gone_is_gone(page, guarded):
    page.js("location.hash === '' || document.getElementById('back').click()")
    page.wait("document.querySelectorAll('#sandboxes-list .square').length === 4 && document.getElementById('policy').hidden")
    set_value(page, "sandboxes-by", "denies", "change")
    page.wait("document.querySelector('#sandboxes-list .square').classList.contains('denied')")
    guarded[0].weir("detach", "agent-3")
    page.wait("document.querySelectorAll('#sandboxes-list .square').length === 3")


def test_D_nothing_was_refused_to_the_page(page):
    assert page.all_faults() == [] and page.js("self.ran") is None
    assert page.js(f"performance.getEntriesByType('resource').every(e => e.name.startsWith('http://localhost:{PORT}/'))")
