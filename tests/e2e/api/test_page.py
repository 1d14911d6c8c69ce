# SPDX-License-Identifier: Apache-2.0
"""/ui/: the page's files and their headers, and which requests of browsers the API answers."""
import gzip
import json
import os
import pathlib
import re

import pytest

from world.apid import TOKEN, TOKEN_HEADER, Api

FILES = pathlib.Path(__file__).parents[3] / "src/api/ui"
ASSETS = sorted(p.name for p in FILES.iterdir())
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
POLICY = '{"egress":[{"action":"allow","target":"a.test"}]}'


@pytest.fixture(scope="module")
def api():
    with Api() as a:
        yield a


@pytest.fixture(scope="module")
def free():
    """Without a token, and open: whoever reaches it may change it, as the daemon's behind socat."""
    with Api("open=1", token=None) as a:
        yield a


def path_of(name):
    return "/ui/" if name == "index.html" else f"/ui/{name}"


# ---- the files ----

@pytest.mark.parametrize("name", ASSETS)
def test_files_are_served_as_they_are(api, name):
    status, headers, text = api.request("GET", path_of(name), headers={})
    assert (status, text) == (200, (FILES / name).read_text())
    assert headers["Content-Type"] == TYPES[pathlib.Path(name).suffix]
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy == {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
                      "frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'none'",
                      "require-trusted-types-for": "'script'", "trusted-types": "'none'"}
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"], headers["X-Frame-Options"],
            headers["Cross-Origin-Resource-Policy"]) == ("nosniff", "no-referrer", "DENY", "same-origin")
    assert headers["Cache-Control"] == "no-cache" and headers["Set-Cookie"] is None
    assert api.request("HEAD", path_of(name), headers={})[::2] == (200, "")


def test_tags(api):
    tags = {}
    for name in ASSETS:
        tag = tags[name] = api.request("GET", path_of(name), headers={})[1]["ETag"]
        assert re.fullmatch(r'"[0-9a-f]{20}"', tag)
        for known in (tag, f'"x", W/{tag}', "*"):
            status, headers, text = api.request("GET", path_of(name), headers={"If-None-Match": known})
            assert (status, text, headers["ETag"], headers["Cache-Control"]) == (304, "", tag, "no-cache")
            assert headers["Content-Security-Policy"]
        for other in ('"x"', tag[:-2] + '"', tag[1:-1], ""):
            assert api.status("GET", path_of(name), headers={"If-None-Match": other}) == 200
    assert len(set(tags.values())) == len(ASSETS)


def test_an_answer_without_a_body_ends(api):
    """The next answer on the same connection is where it should be."""
    tag = api.request("GET", "/ui/", headers={})[1]["ETag"]
    one = f"GET /ui/ HTTP/1.1\r\nHost: x\r\nIf-None-Match: {tag}\r\n\r\n"
    got = api.raw((one * 3 + "HEAD /ui/ HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n").encode())
    assert re.findall(rb"HTTP/1\.[01] (\d+)", got) == [b"304"] * 3 + [b"200"] * 2 and got.endswith(b"\r\n\r\nok")
    lengths = set(re.findall(rb"Content-Length: (\d+)", got))
    assert lengths <= {b"2", str((FILES / "index.html").stat().st_size).encode()}


def test_the_page_is_small_and_loads_nothing_from_elsewhere():
    text = {name: (FILES / name).read_text() for name in ASSETS}
    assert sum(len(gzip.compress(t.encode())) for t in text.values()) < 80000 and sum(map(len, text.values())) < 120000
    for name, source in text.items():
        assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]|url\(|@import|data:[a-z]", source.replace("// ", "")), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|localStorage|"
                             r"sessionStorage|cookie|srcdoc|style=|\son[a-z]+=|\.style\b", source), name
    named = set(re.findall(r'(?:src|href)="([^"#]+)"', text["index.html"]))
    imported = {m for name in ASSETS if name.endswith(".js") for m in re.findall(r'from "\./([^"]+)"', text[name])}
    assert named | imported | {"index.html"} == set(ASSETS)


@pytest.mark.parametrize("path", ["/ui/x.js", "/ui/index.html", "/ui/../policy.js", "/ui/main.js/", "/ui/%2e", "/ui/main.js%20",
                                  "/uix", "/Ui/", "/favicon.ico"])
def test_other_files_are_not_there(api, path):
    status, headers, text = api.request("GET", path, headers={})
    if status != 301:
        assert (status, text) == (404, "404 page not found\n")
    assert api.status("GET", "/ui/main.js?v=1", headers={}) == 200


def test_the_way_to_it(api):
    for method in ("GET", "HEAD"):
        status, headers, text = api.request(method, "/ui", headers={})
        assert (status, headers["Location"], text) == (301, "ui/", "")
    assert api.request("GET", "/", headers={})[::2] == (404, "404 page not found\n")  # the contract's


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_it_is_only_read(api, method):
    for path in ("/ui", "/ui/", "/ui/main.js"):
        status, headers, text = api.request(method, path, "x", headers={})
        assert (status, headers["Allow"], text) == (405, "GET, HEAD", "method not allowed\n")


def test_it_can_be_switched_off():
    with Api("ui=0") as a:
        for path in ("/ui", "/ui/", "/ui/main.js"):
            assert a.request("GET", path, headers={})[::2] == (404, "404 page not found\n")
        assert a.status("GET", "/status") == 200


def test_answers_stay_with_who_asked(api):
    for path in ("/policy", "/status", "/denies", "/healthz"):
        headers = api.request("GET", path)[1]
        assert (headers["X-Content-Type-Options"], headers["Cross-Origin-Resource-Policy"]) == ("nosniff", "same-origin")
        assert not any(name.lower().startswith("access-control") for name in headers)
    assert api.request("GET", "/policy")[1]["Cache-Control"] == "no-store"


# ---- browsers that other pages send ----

AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
NEAR = "127.0.0.1:18080"
FOREIGN = {
    "a form of another site": {"Host": NEAR, "Origin": "http://evil.test", "Content-Type": "text/plain"},
    "a script of another site": {"Host": NEAR, "Origin": "http://evil.test", "Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {"Host": NEAR, "Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
    "an image of another site": {"Host": NEAR, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    "a sandboxed frame": {"Host": NEAR, "Origin": "null"},
    "a name that was pointed here": {"Host": "evil.test:18080", "User-Agent": AGENT},
    "a name without dots": {"Host": "wpad", "User-Agent": AGENT},
    "one with a port": {"Host": "wpad:18080", "Origin": "http://wpad:18080", "Sec-Fetch-Site": "same-origin"},
    "one that hides its browser": {"Host": "evil.test:18080", "User-Agent": "curl/8", "Accept-Language": "en"},
    "one that says it is its own": {"Host": "evil.test:18080", "Origin": "http://evil.test:18080",
                                    "Sec-Fetch-Site": "same-origin"},
    "one that looks like an address": {"Host": "127.0.0.1.evil.test", "Referer": "http://127.0.0.1.evil.test/"},
}
CHANGES = [("POST", "/policy", POLICY), ("PUT", "/policy", POLICY), ("DELETE", "/policy", '["a.test"]'),
           ("PATCH", "/policy", '[{"action":"allow","target":"a.test"}]'), ("POST", "/review/1/accept", "")]


def from_page(api, method, path, body, headers):
    """The request with this Host, and no other."""
    lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    data = f"{method} {path} HTTP/1.1\r\n{lines}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    head, _, text = api.raw(data.encode()).partition(b"\r\n\r\n")
    return int(head.split()[1]), text.decode()


@pytest.mark.parametrize("what", FOREIGN)
def test_other_pages_change_and_read_nothing(free, what):
    for method, path, body in [*CHANGES, ("GET", "/policy", ""), ("GET", "/events", ""), ("GET", "/status", ""),
                               ("GET", "/denies", ""), ("GET", "/metrics", ""), ("OPTIONS", "/policy", "")]:
        status, text = from_page(free, method, path, body, FOREIGN[what])
        assert (status, text[:10]) == (403, "forbidden:"), (method, path)
    assert free.json("/policy")["policy"]["egress"] == [] and free.log() == []


def test_refusals_are_counted(free):
    before = free.metric("api_forbidden_total")
    from_page(free, "POST", "/policy", POLICY, FOREIGN["a sandboxed frame"])
    assert free.metric("api_forbidden_total") == before + 1


@pytest.mark.parametrize("headers", [
    {"Host": NEAR}, {"Host": "side.ns.svc:18080"}, {"Host": "side.ns.svc", "User-Agent": "python-requests/2.31"},
    {"Host": NEAR, "User-Agent": AGENT, "Origin": f"http://{NEAR}", "Sec-Fetch-Site": "same-origin"},
    {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Referer": "http://localhost:8080/ui/"},
    {"Host": "[::1]:8080", "Origin": "http://[::1]:8080", "Accept-Language": "en"},
    {"Host": "side", "User-Agent": "python-requests/2.31"},
])
def test_programs_and_its_own_page_are_answered(free, headers):
    assert from_page(free, "POST", "/policy", POLICY, headers)[0] == 200
    assert from_page(free, "GET", "/policy", "", headers)[0] == 200
    assert free.status("POST", "/policy", "") == 200


def test_names_that_the_operator_has_spelled_are_its_own(pod):
    """And the host's: a browser may call it so, and by no other name."""
    own = os.uname().nodename
    side = pod.sidecar(token=None, env={"WEIR_API_HOST": "weir,web.default.svc"})
    for name, status in (("weir", 200), ("Weir:18080", 200), ("web.default.svc:18080", 200), (own, 200), ("localhost", 200),
                         ("wpad", 403), ("default.svc", 403), ("x.weir", 403), (f"x.{own}", 403), ("weir.evil.test", 403)):
        assert side.get("/policy", headers={"Host": name, "User-Agent": AGENT}).status == status, name
        # who is no browser may use any, as OpenSandbox's clients do by the names of services
        assert side.get("/policy", headers={"Host": name}).status == 200, name
    done = pod.sidecar("--api-host", "a b", "--api-host", "x:80", "--api-host", "*", ready=False)
    assert done.ended() == 2
    assert all(f"--api-host: '{text}' is not a host name without a port" in str(done) for text in ("a b", "x:80", "*")), str(done)


@pytest.mark.parametrize("what", FOREIGN)
def test_a_token_is_answered_wherever_it_comes_from(api, what):
    """No page knows it, and OpenSandbox's clients may come through any proxy."""
    assert from_page(api, "GET", "/policy", "", {**FOREIGN[what], TOKEN_HEADER: TOKEN})[0] == 200
    for method, path, body in CHANGES:
        assert from_page(api, method, path, body, FOREIGN[what])[0] == 401
    assert api.log() == [] and api.json("/policy")["policy"]["egress"] == []


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_open_stays_open(free, what):
    for path in ("/healthz", "/ui/", "/openapi.yaml"):
        assert from_page(free, "GET", path, "", FOREIGN[what])[0] == 200


def test_the_status_says_whether_anything_can_be_changed(api, free):
    assert api.json("/status")["readOnly"] is free.json("/status")["readOnly"] is False
    with Api(token=None) as a:
        assert a.json("/status")["readOnly"] is True
        assert from_page(a, "POST", "/policy", POLICY, {"Host": NEAR}) == (403, "forbidden\n")
        assert json.loads(a.request("GET", "/policy")[2])["policy"]["egress"] == []
