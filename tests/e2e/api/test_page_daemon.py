# SPDX-License-Identifier: Apache-2.0
"""The page of a daemon, through socat as the manual says and over TLS: who may ask. What it shows is in test_page_watch.py."""
import subprocess

import pytest

from test_cli_tls import TOKEN, make_certificate
from world.browser import CHROMIUM, Browser
from world.sidecar import request, wait_for

PORT = 8080


@pytest.fixture
def reached(host, pod, other):
    """A daemon with two sandboxes, on a port of the host's loopback."""
    daemon = host.daemon("--state-dir", host.folder / "state")
    daemon.attach("one", pod)
    daemon.attach("two", other)
    socat = subprocess.Popen(host.ns.command("socat", f"TCP-LISTEN:{PORT},bind=127.0.0.1,fork,reuseaddr",
                                             f"UNIX-CONNECT:{daemon.socket}"), stderr=subprocess.DEVNULL)

    def answers():
        try:
            return request(host.ns, ("127.0.0.1", PORT), "GET", "/ui/").status == 200
        except OSError:
            return False
    wait_for(answers)
    yield daemon
    socat.kill()
    socat.wait()


def test_pages_of_other_sites_cannot_use_it(reached, host):
    """Nobody asks for a token there, but a browser on the way says for whom it asks."""
    where = ("127.0.0.1", PORT)
    for headers in ({"Origin": "http://evil.test"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"},
                    {"Host": f"evil.test:{PORT}", "User-Agent": "Mozilla/5.0"}, {"Host": "wpad", "User-Agent": "Mozilla/5.0"}):
        for method, path in (("DELETE", "/sandboxes/one"), ("PUT", "/sandboxes/new"), ("POST", "/sandboxes/one/policy"),
                             ("GET", "/sandboxes"), ("GET", "/sandboxes/one/policy"), ("GET", "/sandboxes/one/healthz")):
            reply = request(host.ns, where, method, path, "{}", headers)
            assert (reply.status, reply.text[:10]) == (403, "forbidden:"), (method, path)
    assert reached.names() == ["one", "two"]
    assert request(host.ns, where, "GET", "/sandboxes/one/ui/").status == 404
    assert request(host.ns, where, "GET", "/sandboxes", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium")
def test_the_page_over_tls_asks_for_the_token(host, pod, denied, tmp_path):
    cert, key = make_certificate(host.folder)
    (host.folder / "token").write_text(TOKEN)
    daemon = host.daemon("--listen", "127.0.0.1:9443", "--tls-cert", cert, "--tls-key", key, "--token-file", host.folder / "token")
    daemon.attach("one", pod)
    with Browser(host.ns, tmp_path, "--ignore-certificate-errors") as page:
        page.open("https://weir.test:9443/ui/#s=one")
        page.wait("document.activeElement.id === 'token'")
        for wrong in range(10):
            page.type(f"guess-{wrong}")
            page.key("Enter")
            page.wait("document.getElementById('login-fault').textContent.includes('not take')")
        page.type("guess")
        page.key("Enter")
        page.wait("document.getElementById('login-fault').textContent.includes('Wait a minute')")
        assert page.js("document.getElementById('sandbox').innerText") == "" and page.js("document.getElementById('all').hidden")
        daemon.kill_child("control")  # it counts anew
        page.open("about:blank")
        page.open("https://weir.test:9443/ui/#s=one")
        page.wait("document.activeElement.id === 'token'")
        page.type(TOKEN)
        page.key("Enter")
        page.wait("document.getElementById('sandbox').textContent === 'one'")
        pod.probe(["dns", denied.name])
        page.wait(f"document.getElementById('events-list').innerText.includes({denied.name!r})")
        assert page.all_faults() == []
