# SPDX-License-Identifier: Apache-2.0
"""The contract of OpenSandbox's egress API: the recorded cases, tokens, limits, failures, the log."""
import json

import pytest

from world import replay
from world.apid import TOKEN, Api

POLICY = json.dumps(replay.BASE)
PLAIN = "text/plain; charset=utf-8"


def targets(api):
    return [rule["target"] for rule in api.json("/policy")["policy"]["egress"]]


def post(api, *rules, default="deny"):
    body = {"defaultAction": default, "egress": [dict(zip(("action", "target"), rule.split())) for rule in rules]}
    return api.request("POST", "/policy", json.dumps(body))


def test_recorded_cases(api):
    assert api.status("POST", "/policy", POLICY) == 200
    assert replay.replay(api.url, TOKEN) == []


def test_each_deviation_is_needed():
    seen = {name for case in replay.cases() for name in case["deviations"]}
    assert seen == {d.name for d in replay.DEVIATIONS}


# ---- who may ----

AUTH = [
    ({}, 401), ({"OPENSANDBOX-EGRESS-AUTH": ""}, 401), ({"OPENSANDBOX-EGRESS-AUTH": "x"}, 401),
    ({"OPENSANDBOX-EGRESS-AUTH": TOKEN}, 200), ({"opensandbox-egress-auth": TOKEN}, 200),
    ({"OpenSandbox-Egress-Auth": f" \t{TOKEN} \t"}, 200),
    ({"OPENSANDBOX-EGRESS-AUTH": TOKEN.lower()}, 401), ({"OPENSANDBOX-EGRESS-AUTH": TOKEN[:-1]}, 401),
    ({"OPENSANDBOX-EGRESS-AUTH": TOKEN + "x"}, 401), ({"OPENSANDBOX-EGRESS-AUTH": TOKEN[:-1] + "x"}, 401),
    ({"OPENSANDBOX-EGRESS-AUTH": f"Bearer {TOKEN}"}, 401), ({"OPENSANDBOX-EGRESS-AUTH": f'"{TOKEN}"'}, 401),
    ({"OPENSANDBOX-EGRESS-AUTH-X": TOKEN}, 401), ({"X-OPENSANDBOX-EGRESS-AUTH": TOKEN}, 401),
    ({"Authorization": f"Bearer {TOKEN}"}, 200), ({"authorization": f"bearer   {TOKEN} "}, 200),
    ({"Authorization": TOKEN}, 401), ({"Authorization": f"Basic {TOKEN}"}, 401),
    ({"Authorization": f"Bearer {TOKEN}x"}, 401), ({"Authorization": "Bearer"}, 401),
    ({"Authorization": "Bearer "}, 401),
    ({"Authorization": f"Bearer{TOKEN}"}, 401), ({"Cookie": f"OPENSANDBOX-EGRESS-AUTH={TOKEN}"}, 401),
]
GUARDED = ["/policy", "/credential-vault", "/credential-vault/credentials", "/credential-vault/x", "/status",
           "/metrics", "/events", "/denies", "/events/stored", "/activity", "/top", "/policy/explain", "/policy/check"]


@pytest.mark.parametrize("headers, status", AUTH)
def test_token(api, headers, status):
    got = api.request("GET", "/policy", headers=headers)
    assert got[0] == status
    if status == 401:
        assert got[2] == "unauthorized\n"
        assert (got[1]["Content-Type"], got[1]["X-Content-Type-Options"]) == (PLAIN, "nosniff")


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_token_comes_before_the_method(api, path, method):
    assert api.request(method, path, "[]", headers={})[::2] == (401, "unauthorized\n")
    assert api.log() == []


@pytest.mark.parametrize("path, status", [("/healthz", 200), ("/openapi.yaml", 200), ("/nothing", 404), ("/", 404),
                                          ("/credential-vault/_active", 403), ("//policy", 301)])
def test_open_without_the_token(api, path, status):
    assert api.status("GET", path, headers={}) == status


@pytest.mark.parametrize("token", [None, ""])
def test_without_a_token_the_api_is_read_only(token):
    with Api(*([] if token is None else ["token="]), token=None) as a:
        assert a.status("GET", "/policy") == a.status("GET", "/denies") == a.status("GET", "/status") == 200
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for body in ("", POLICY, "not-json", "[]"):
                status, headers, text = a.request(method, "/policy", body)
                assert (status, text, headers["Content-Type"]) == (403, "forbidden\n", PLAIN)
        assert a.status("OPTIONS", "/policy") == 405
        assert a.status("POST", "/policy", POLICY, headers={replay.TOKEN_HEADER: "guess"}) == 403
        assert targets(a) == []
        assert a.request("POST", "/credential-vault", "{}")[::2] == (
            412, "credential vault requires egress API auth token\n")


def test_open_has_to_be_spelled():
    with Api("open=1", token=None) as a:
        assert a.status("POST", "/policy", POLICY) == 200
        assert targets(a) == ["*.example.com", "198.51.100.54"]


# ---- changes ----

def test_patch_puts_its_rules_first(api):
    post(api, "allow example.com", "deny *.example.com")
    patch = [{"action": "deny", "target": "blocked.com"}, {"action": "allow", "target": "example.com"}]
    assert api.status("PATCH", "/policy", json.dumps(patch)) == 200
    assert targets(api) == ["blocked.com", "example.com", "*.example.com"]
    assert api.json("/policy")["policy"]["defaultAction"] == "deny"


def test_patch_replaces_in_any_case(api):
    post(api, "deny Example.COM")
    assert api.status("PATCH", "/policy", '[{"action":"allow","target":"example.com"}]') == 200
    assert api.json("/policy")["policy"]["egress"] == [{"action": "allow", "target": "example.com"}]


def test_too_many_rules():
    with Api("max_rules=2") as a:
        assert post(a, "allow a.com", "allow b.com")[0] == 200
        status, headers, text = a.request("PATCH", "/policy", '[{"action":"allow","target":"c.com"}]')
        assert (status, text, headers["Content-Type"]) == (413, "egress rule total count 3 exceeds limit 2\n", PLAIN)
        assert post(a, "allow a.com", "allow b.com", "deny c.com")[0] == 413
        assert targets(a) == ["a.com", "b.com"]
        assert a.log()[1][1] == "egress rule total count 3 exceeds limit 2"


def test_no_limit_of_rules():
    with Api("max_rules=0") as a:
        assert post(a, *(f"allow n{i}.test" for i in range(5000)))[0] == 200
        assert len(targets(a)) == 5000


def test_delete(api):
    post(api, "allow a.com", "deny Blocked.COM", "allow b.com", default="allow")
    assert api.status("DELETE", "/policy", '[" blocked.com ","nonexistent.com"]') == 200
    assert targets(api) == ["a.com", "b.com"]
    assert api.json("/policy")["policy"]["defaultAction"] == "allow"
    answer = '{"status":"ok","mode":"enforcing","enforcementMode":"dns+nft","reason":"no matching targets found"}\n'
    generation = api.json("/status")["generation"]
    assert api.request("DELETE", "/policy", '["none.com",""]')[2] == answer
    assert api.json("/status")["generation"] == generation
    assert api.status("DELETE", "/policy", '["a.com","b.com"]') == 200
    assert '"mode":"allow_all","enforcementMode":"dns+nft","policy":{"egress":[],' in api.request("GET", "/policy")[2]


@pytest.mark.parametrize("what, status, text", [("policy", 400, "invalid policy: too odd\n"),
                                                ("persist", 500, "failed to persist policy: too odd\n"),
                                                ("apply", 500, "failed to apply nftables policy: too odd\n")])
def test_a_change_that_fails_changes_nothing(api, what, status, text):
    post(api, "allow a.com")
    api.log()
    api.tell("fail", what, "too odd")
    assert post(api, "allow b.com")[::2] == (status, text)
    assert api.status("PATCH", "/policy", '[{"action":"allow","target":"b.com"}]') == status
    assert api.status("DELETE", "/policy", '["a.com"]') == status
    assert targets(api) == ["a.com"]
    log = api.log()
    assert len(log) == 3 and all(error and fault == (status < 500) for _, error, fault in log)
    api.tell("fail", "not", "-")
    assert post(api, "allow b.com")[0] == 200
    assert targets(api) == ["b.com"]


def test_log_tells_what_the_request_brought(api):
    post(api, "allow a.com", "deny b.com")
    api.request("PATCH", "/policy", '[{"action":"allow","target":"c.com"}]')
    api.request("DELETE", "/policy", '["B.com"]')
    api.request("POST", "/policy", "")
    api.request("POST", "/policy", "{")
    api.request("DELETE", "/policy", '["nothing.com"]')
    rules = [entry[0] and [r["target"] for r in json.loads(entry[0])] for entry in api.log()]
    assert rules == [["a.com", "b.com"], ["c.com"], ["b.com"], [], None]


def test_log_tells_unknown_keys(api):
    keys = "".join(f'"k{i}\\u001b[2J":1,' for i in range(50))
    assert api.status("POST", "/policy", "{" + keys + '"egress":[]}') == 200
    log = api.log()
    assert 2 < len(log) < 12 and log[0] == "k0\\x1b[2J"
    assert api.status("PATCH", "/policy", '[{"action":"allow","target":"a.com","untill":"2001-01-01T00:00:00Z"}]') == 200
    assert api.log()[0] == "egress[].untill"


# ---- bodies ----

def padded(size):
    return POLICY + " " * (size - len(POLICY))


@pytest.mark.parametrize("size, status", [(1 << 20, 200), ((1 << 20) + 1, 413), (3 << 20, 413), (9 << 20, 413)])
def test_size_of_a_body(api, size, status):
    try:
        got = api.request("POST", "/policy", padded(size))
    except (BrokenPipeError, ConnectionResetError):
        assert size > 8 << 20
        return
    assert got[0] == status
    if status == 413:
        assert (got[2], got[1]["Content-Type"]) == ("request body too large\n", PLAIN)


def chunked(body, size, head=b""):
    chunks = [body[i:i + size] for i in range(0, len(body), size)]
    data = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    return (b"POST /policy HTTP/1.1\r\nHost: x\r\n" + f"{replay.TOKEN_HEADER}: {TOKEN}\r\n".encode() + head +
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + data)


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_chunked_body(api, size):
    assert api.raw(chunked(POLICY.encode(), size)).startswith(b"HTTP/1.1 200")
    assert targets(api) == ["*.example.com", "198.51.100.54"]


def test_chunked_body_that_is_too_large(api):
    assert api.raw(chunked(padded((1 << 20) + 1).encode(), 60000)).startswith(b"HTTP/1.1 413")


def test_chunked_body_without_end(api):
    """After 8 MiB nobody reads any more."""
    api.raw(chunked(b" " * (12 << 20), 1 << 20))
    assert api.status("GET", "/healthz") == 200


def test_body_of_a_stranger_is_not_kept(api):
    for _ in range(20):
        assert api.status("POST", "/policy", padded(1 << 20), headers={}) == 401


def test_expect_continue(api):
    """Who asks first is told before the body travels."""
    head = "POST /policy HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nExpect: 100-continue\r\n{}\r\n"
    with api.connect() as s:
        s.sendall(head.format(len(POLICY), f"{replay.TOKEN_HEADER}: {TOKEN}\r\n").encode())
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(POLICY.encode())
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
    for length, token, answer in [(10, "no", b"401"), (2 << 20, TOKEN, b"413")]:
        with api.connect() as s:
            s.sendall(head.format(length, f"{replay.TOKEN_HEADER}: {token}\r\n").encode())
            assert s.recv(1000).startswith(b"HTTP/1.1 " + answer)


def test_half_a_body_changes_nothing(api):
    post(api, "allow a.com")
    with api.connect() as s:
        s.sendall((f"POST /policy HTTP/1.1\r\nHost: x\r\n{replay.TOKEN_HEADER}: {TOKEN}\r\n"
                   "Content-Length: 100\r\n\r\n{}").encode())
    assert targets(api) == ["a.com"]
