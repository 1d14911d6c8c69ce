# SPDX-License-Identifier: Apache-2.0
"""Callers that are slow, silent, many or malformed delay nobody and break nothing."""
import json
import random
import re
import socket
import subprocess
import threading
import time

import pytest

from world.apid import TOKEN, TOKEN_HEADER, Api, Events, read_all, until
from world.netns import NetNs

AUTH = f"{TOKEN_HEADER}: {TOKEN}\r\n"


def head(method="GET", path="/healthz", *lines, version="1.1"):
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: x", "Connection: close", *lines, "", ""]).encode()


def split(answer):
    """(status, headers, body) of the first answer in these bytes."""
    match = re.match(rb"HTTP/1\.[01] (\d{3}) [^\r\n]*\r\n(.*?)\r\n\r\n(.*)", answer, re.S)
    assert match, answer
    headers = dict(line.split(b": ", 1) for line in match.group(2).split(b"\r\n"))
    return int(match.group(1)), headers, match.group(3)


def quick(api):
    """A health check is answered at once."""
    begun = time.monotonic()
    assert api.status("GET", "/healthz", timeout=60) == 200
    return time.monotonic() - begun


def hang_up(sockets):
    for s in sockets:
        s.close()


# ---- many connections ----

@pytest.mark.parametrize("said", [b"", b"G", b"GET /policy HTTP/1.1\r\nHost: x\r\nX: y",
                                  b"POST /policy HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n" +
                                  AUTH.encode() + b"\r\n{"],
                         ids=["silent", "one byte", "half a head", "half a body"])
def test_idle_connections_delay_nobody(api, said):
    sockets = []
    try:
        for _ in range(100):
            s = api.connect()
            s.sendall(said)
            sockets.append(s)
        assert quick(api) < 8
        assert api.metric("api_evicted_total") >= 36
        assert api.metric("api_connections") <= 65
        assert api.descriptors() < 64 + 16 + 16
    finally:
        hang_up(sockets)
    assert until(lambda: api.metric("api_connections") == 1)


def test_the_network_that_holds_most_makes_room():
    """The sandbox fills all places, from as many addresses as it likes; who is silent elsewhere keeps his place."""
    ns = NetNs()
    ns.ip("link set lo up", "addr add 198.51.100.7/32 dev lo", "addr add 198.51.100.8/32 dev lo")
    with ns.entered(), Api() as api:
        # From an address that isn't the one asked: as from another machine.
        guests = [api.connect(source="198.51.100.7"), api.connect(source="198.51.100.8")]
        crowd = [api.connect(source=f"127.0.0.{i % 200 + 2}") for i in range(80)]
        crowd += [api.connect("198.51.100.8", source="198.51.100.8") for _ in range(20)]
        assert quick(api) < 8
        assert api.metric("api_evicted_total") >= 36
        for s in [*guests, crowd[-1]]:
            s.sendall(head())
            assert read_all(s).startswith(b"HTTP/1.1 200")
        assert read_all(crowd[0]) == b""
        hang_up(guests + crowd)


def test_silence_ends_a_connection():
    with Api("idle=1") as a, a.connect() as s:
        begun = time.monotonic()
        assert s.recv(10) == b""
        assert time.monotonic() - begun > 0.5


def test_a_slow_request_ends():
    """A byte now and then isn't silence."""
    with Api("idle=5", "request=2") as a, a.connect() as s:
        begun = time.monotonic()
        s.settimeout(0.2)
        ended = False
        while not ended and time.monotonic() - begun < 60:
            try:
                s.sendall(b"X")
                ended = s.recv(10) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
        assert ended
        assert a.metric("api_timed_out_total") == 1


def test_slow_reader_of_an_answer():
    with Api("idle=1", "max_rules=0") as a:
        rules = [{"action": "allow", "target": f"{'a' * 60}.{'b' * 60}.n{i}.test"} for i in range(5000)]
        assert a.status("POST", "/policy", json.dumps({"egress": rules})) == 200
        sockets = []
        for _ in range(12):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", a.port))
            s.sendall(head("GET", "/policy", AUTH.strip()))
            sockets.append(s)
        quick(a)
        assert quick(a) < 8
        assert until(lambda: a.metric("api_connections") == 1)
        hang_up(sockets)


def test_keeps_serving_while_many_ask(api):
    """64 callers at once, each many times over one connection."""
    failures = []

    def ask():
        try:
            with api.connect() as s:
                for _ in range(20):
                    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    data = b""
                    while not data.endswith(b"\r\n\r\nok"):
                        data += s.recv(1000)
        except Exception as e:  # noqa: BLE001 — told by the thread that asks
            failures.append(e)

    threads = [threading.Thread(target=ask) for _ in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


@pytest.mark.parametrize("line", ["X: y", "Expect: 100-continue", "Content-Length: 9000000"],
                         ids=["asked", "before the body", "with a body too large"])
def test_searches_hold_up_nobody(line):
    """What takes long is done once in a turn of the loop, however many ask for it at once."""
    search = f"GET /review HTTP/1.1\r\nHost: x\r\n{AUTH}{line}\r\n\r\n".encode()
    with Api("search=200") as a:
        crowd = [a.connect() for _ in range(60)]
        for s in crowd:
            s.sendall(search * 20)
        for _ in range(3):
            begun = time.monotonic()
            assert a.tell("health", "1") == "ok"  # another source of the loop
            assert quick(a) < 4
            assert time.monotonic() - begun < 6
        for s in crowd[:30]:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            s.close()
        assert quick(a) < 4
        hang_up(crowd[30:])


def test_searches_are_all_answered():
    """In the order of coming, also several of one connection."""
    with Api("search=20") as a:
        crowd = [a.connect() for _ in range(20)]
        for s in crowd:
            s.sendall(head("GET", "/review", AUTH.rstrip()).replace(b"Connection: close", b"X: y") +
                      head("GET", "/review", AUTH.rstrip()))
        for s in crowd:
            assert read_all(s).count(b'{"tasks":[]}') == 2
            s.close()


def test_searches_that_wait_make_room():
    """Who waits for his search has his place taken as anybody else, and at once."""
    with Api("search=300") as a:
        crowd = [a.connect() for _ in range(64)]
        for s in crowd:
            s.sendall(head("GET", "/review", AUTH.rstrip()))
        for _ in range(10):
            assert quick(a) < 4
        hang_up(crowd)


def test_a_search_from_elsewhere_does_not_wait_for_those_of_the_sandbox():
    ns = NetNs()
    ns.ip("link set lo up", "addr add 198.51.100.7/32 dev lo")
    with ns.entered(), Api("search=200") as a:
        crowd = [a.connect() for _ in range(50)]
        for s in crowd:
            s.sendall(head("GET", "/review", AUTH.rstrip()))
        assert quick(a) < 4  # all of them wait, which takes 10 s
        begun = time.monotonic()
        with a.connect(source="198.51.100.7") as other:
            other.sendall(head("GET", "/review", AUTH.rstrip()))
            assert read_all(other).count(b'{"tasks":[]}') == 1
        assert time.monotonic() - begun < 4
        hang_up(crowd)


def test_the_end_waits_for_no_search():
    api = Api("search=100")
    crowd = [api.connect() for _ in range(40)]
    for s in crowd:
        s.sendall(head("GET", "/review", AUTH.rstrip()) * 5)
    api.tell("health", "1")
    begun = time.monotonic()
    api.__exit__()
    assert time.monotonic() - begun < 3
    hang_up(crowd)


def test_no_work_while_nothing_happens(api):
    """Whatever callers left undone, unread or half closed."""
    streams = [Events(api) for _ in range(4)]
    with api.connect(), api.connect() as half, api.connect() as unread, api.connect() as talks:
        half.sendall(b"GET /hea")
        half.shutdown(socket.SHUT_WR)
        unread.sendall(b"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        talks.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n\r\n\r\n")
        api.event("a.test")
        streams[0].next()
        streams[1].socket.sendall(b"GET /healthz HTTP/1.1\r\n")
        streams[2].socket.shutdown(socket.SHUT_WR)
        streams[3].socket.close()
        quick(api)
        before = api.cpu_seconds()
        time.sleep(2)
        assert api.cpu_seconds() - before < 0.25
        for stream in streams:
            stream.socket.close()


def test_out_of_descriptors():
    """Those who wait are accepted when there is room, and waiting costs nothing."""
    with Api("idle=3") as a:
        subprocess.run(["prlimit", "--pid", str(a.process.pid), f"--nofile={a.descriptors() + 5}"], check=True)
        crowd = [a.connect() for _ in range(12)]
        time.sleep(0.3)
        before = a.cpu_seconds()
        time.sleep(1)
        assert a.cpu_seconds() - before < 0.25
        hang_up(crowd)
        assert a.status("GET", "/healthz") == 200


# ---- malformed requests ----

CHUNKED = head("POST", "/policy", "Transfer-Encoding: chunked", AUTH.strip())
MALFORMED = {
    "no version": (b"GET /healthz\r\n\r\n", {400}),
    "version 2": (b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", {505}),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", {400}),
    "two hosts": (head("GET", "/healthz", "Host: y"), {400}),
    "no colon": (head("GET", "/healthz", "broken"), {400}),
    "two lengths": (head("POST", "/policy", "Content-Length: 2", "Content-Length: 3", AUTH.strip()) + b"{} ", {400}),
    "length and chunks": (head("POST", "/policy", "Content-Length: 3", "Transfer-Encoding: chunked", AUTH.strip()) +
                          b"2\r\n{}\r\n0\r\n\r\n", {400}),
    "a blank before the colon": (head("POST", "/policy", "Content-Length : 2", AUTH.strip()) + b"{}", {400}),
    "a tab before it": (head("POST", "/policy", "Transfer-Encoding\t: chunked", AUTH.strip()) + b"2\r\n{}\r\n0\r\n\r\n", {400}),
    "a blank and another length": (head("POST", "/policy", "Content-Length : 0", "Content-Length: 2", AUTH.strip()) + b"{}", {400}),
    "a blank in a name": (head("GET", "/healthz", "Content Length: 2"), {400}),
    "a bracket in a name": (head("GET", "/healthz", "Content-Length[]: 2"), {400}),
    "another encoding": (head("POST", "/policy", "Transfer-Encoding: gzip", AUTH.strip()), {400}),
    "two encodings": (head("POST", "/policy", "Transfer-Encoding: gzip, chunked", AUTH.strip()), {400}),
    "length is text": (head("POST", "/policy", "Content-Length: abc", AUTH.strip()), {400}),
    "negative length": (head("POST", "/policy", "Content-Length: -1", AUTH.strip()), {400}),
    "endless length": (head("POST", "/policy", "Content-Length: " + "9" * 40, AUTH.strip()), {413}),
    "bad chunk": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", {400}),
    "endless chunk": (CHUNKED + b"f" * 18 + b"\r\n{}", {413}),
    "bad escape": (head("GET", "/pol%zz"), {400}),
    "half an escape": (head("GET", "/policy%2"), {400}),
    "escaped nul": (head("GET", "/policy%00"), {400}),
    "control byte": (b"GET /pol\x01icy HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
    "authority": (head("CONNECT", "a.test:443"), {400}),
    "long target": (head("GET", "/" + "a" * 5000), {404}),
    "longer target": (head("GET", "/" + "a" * 100000), {414}),
    "large head": (head("GET", "/healthz", "X: " + "a" * 100000), {431}),
    "many lines": (head("GET", "/healthz", *["X: a"] * 20000), {431}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(api, name):
    data, statuses = MALFORMED[name]
    answer = api.raw(data, close_writing=False)
    status, headers, _ = split(answer)
    assert status in statuses
    assert b"Date" in headers
    assert api.json("/policy")["policy"]["egress"] == []


def test_what_is_behind_a_broken_head_is_no_request(api):
    """Another reader may take it for a body."""
    behind = head("POST", "/policy", "Content-Length: 53", AUTH.strip()) + b'{"egress":[{"action":"allow","target":"smuggled.test"}]}'
    for line in (f"Content-Length : {len(behind)}", "Transfer-Encoding : chunked"):
        answer = api.raw(head("POST", "/policy", line, AUTH.strip()) + behind, close_writing=False)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"400"], line
    assert api.json("/policy")["policy"]["egress"] == []


@pytest.mark.parametrize("target, location", [
    ("//policy", "/policy"), ("/./policy", "/policy"), ("/x/../policy", "/policy"), ("/../../policy", "/policy"),
    ("//policy?a=b&c", "/policy?a=b&c"), ("/policy//", "/policy/"), ("//", "/"), ("/..", "/"),
    ("/%2e%2e/policy", "/policy"),
    ("//%0d%0aX-Evil:%201", "/%0D%0AX-Evil:%201"), ("//%22%3E%3Cscript%3E", "/%22%3E%3Cscript%3E"), ("//\xff", "/%FF"),
])
def test_paths_are_cleaned(api, target, location):
    data = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin1")
    status, headers, body = split(api.raw(data))
    assert (status, headers[b"Location"].decode()) == (301, location)
    assert b"X-Evil" not in headers and b"<script" not in body


@pytest.mark.parametrize("target", ["/%70olicy", "http://any.test/policy", "HTTP://any.test/policy?x"])
def test_other_spellings_of_a_path(api, target):
    assert split(api.raw(head("GET", target, AUTH.strip())))[0] == 200
    assert split(api.raw(head("GET", target)))[0] == 401


def test_http_1_0(api):
    answer = api.raw(b"GET /healthz HTTP/1.0\r\n\r\n", close_writing=False)
    assert split(answer)[::2] == (200, b"ok") and b"Connection: close" in answer


def test_pipelined(api):
    """A body's bytes are never read as a request, an answered request's are."""
    data = (b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n" +
            b"GET /policy HTTP/1.1\r\nHost: x\r\n\r\n-------" +
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + head("GET", "/nothing"))
    answer = api.raw(data)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"200", b"404"]


def test_options_of_the_server(api):
    assert split(api.raw(head("OPTIONS", "*")))[0] == 200
    assert split(api.raw(head("GET", "*")))[0] == 400


def test_random_bytes(api):
    """Whatever comes, the API goes on; its end shows whether a sanitizer complained."""
    chance = random.Random(6)
    seeds = [d for d, _ in MALFORMED.values() if len(d) < 500] + [
        head("PATCH", "/policy", AUTH.strip(), "Content-Length: 2") + b"[]",
        head("GET", "/denies?since=10m&name=%2A.x&limit=3", AUTH.strip()), head("GET", "/events", "Last-Event-ID: 1-2")]
    for _ in range(400):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(data))
            data[at:at + chance.randrange(3)] = bytes(chance.randrange(256) for _ in range(chance.randrange(4)))
        with api.connect() as s:
            s.sendall(data)
            s.settimeout(0.02)
            try:
                s.recv(4096)
            except (TimeoutError, ConnectionError):
                pass
    assert quick(api) < 8
    assert api.json("/policy")["policy"]["egress"] == []


def test_connections_that_are_reset():
    with Api("idle=1", "heartbeat=1") as api:
        _reset_many(api)


def _reset_many(api):
    for i in range(200):
        s = api.connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if i % 3:
            s.sendall(head("GET", ["/policy", "/events", "/metrics"][i % 3], AUTH.strip()))
        s.close()
    assert quick(api) < 8
    assert until(lambda: api.metric("api_connections") == 1)


def test_the_end_waits_for_nobody():
    api = Api()
    sockets = [api.connect() for _ in range(20)]
    for s in sockets[:8]:
        s.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n" + AUTH.encode() + b"\r\n")
    assert until(lambda: api.metric("api_streams") == 8)
    api.__exit__()
    for s in sockets:
        read_all(s)
        s.close()
