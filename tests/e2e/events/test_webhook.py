# SPDX-License-Identifier: Apache-2.0
"""weir-webhook with real HTTP and HTTPS servers, driven as its parent does."""
import contextlib
import datetime
import http.server
import json
import os
import pathlib
import queue
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from world.built import BUILD, DRIVERS
from world.program import is_alive
from world.run import SET_ASIDE
from world.sidecar import wait_for

PROGRAM = BUILD / "weir-webhook"


class Server:
    """Answers each POST with the next of @statuses, the last one for good, and keeps what came."""

    def __init__(self, statuses=(200,), context=None, port=0, hold=None, close=False):
        self.got, self.statuses = queue.Queue(), list(statuses)
        self.connections, self.open = 0, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self):
                super().setup()
                outer.connections += 1
                outer.open.append(self.connection)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.put((time.monotonic(), self.path, dict(self.headers), body))
                if hold:
                    hold.wait(30)
                status = outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0]
                self.send_response(status)
                self.send_header("Content-Length", "2")
                if 300 <= status < 400:
                    self.send_header("Location", self.headers["Host"] and outer.elsewhere)
                if close:
                    self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(b"ok")

            do_GET = do_POST

            def log_message(self, *args):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, address):
                pass

        self.elsewhere = ""
        self.server = Quiet(("127.0.0.1", port), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def url(self, path="/hook", host="hook.example", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"

    def next(self, seconds=60):
        return self.got.get(timeout=seconds)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in self.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Parent:
    """tests/drivers/webhook_driver.c."""

    def __init__(self, *urls, sandbox="sb-1", env=None):
        self.process = subprocess.Popen(
            [DRIVERS / "webhook_driver", PROGRAM, sandbox, *urls], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})

    def say(self, *orders):
        self.process.stdin.write("".join(o + "\n" for o in orders).encode("utf-8", "surrogateescape"))
        self.process.stdin.flush()

    def ask(self, order):
        self.say(order)
        return json.loads(self.process.stdout.readline())

    def state(self):
        return self.ask("state")

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition(state := self.state()):
            assert time.monotonic() < end, state
            time.sleep(0.02)
        return state

    def end(self):
        """Return: what it said on stderr."""
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(60)
        return self.process.stderr.read().decode()


@pytest.fixture
def parent(request):
    started = []

    def start(*urls, **options):
        started.append(Parent(*urls, **options))
        return started[-1]
    yield start
    for p in started:
        p.end()
        assert p.process.returncode == 0


@pytest.fixture
def server():
    started = []

    def start(*args, **options):
        started.append(Server(*args, **options))
        return started[-1]
    yield start
    for s in started:
        s.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(context, CA file): a server that is hook.example."""
    folder = tmp_path_factory.mktemp("ca")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", folder / "key", "-out", folder / "cert", "-days", "2", "-subj", "/CN=hook.example",
                    "-addext", "subjectAltName=DNS:hook.example"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context, folder / "cert"


def test_the_payload_is_what_receivers_expect(parent, server):
    s = server()
    p = parent(s.url("/a/b?c=d"))
    p.say("deny Evil.Example.")
    _, path, headers, body = s.next()
    assert path == "/a/b?c=d"
    assert headers["Content-Type"] == "application/json" and "Expect" not in headers
    assert headers["Host"] == f"hook.example:{s.port}"
    data = json.loads(body)
    assert list(data) == ["hostname", "timestamp", "source", "sandboxId"]
    assert (data["hostname"], data["source"], data["sandboxId"]) == ("evil.example", "opensandbox-egress", "sb-1")
    when = datetime.datetime.strptime(data["timestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    assert abs((datetime.datetime.now(datetime.timezone.utc) - when).total_seconds()) < 30
    assert p.until(lambda t: t["sent"] == 1)["failed"] == 0


def test_each_refusal_is_told_in_order_over_one_connection(parent, server):
    s = server()
    p = parent(s.url())
    for i in range(200):
        p.say(f"deny n{i}.test")
    assert [json.loads(s.next()[3])["hostname"] for _ in range(200)] == [f"n{i}.test" for i in range(200)]
    state = p.until(lambda t: t["sent"] == 200)
    assert state["dropped"] == state["failed"] == state["retried"] == 0
    assert state["held"] == 1 and s.connections == 1


def test_a_server_error_is_tried_again_after_1_2_and_4_seconds(parent, server):
    s = server([500, 503, 599, 500, 200])
    p = parent(s.url())
    p.say("deny first.test", "deny second.test")
    times = [s.next()[0] for _ in range(4)]
    gaps = [b - a for a, b in zip(times, times[1:])]
    # The server's clock is read after its thread has woken: a gap may seem a little shorter.
    assert all(gap > wanted / 2 for gap, wanted in zip(gaps, (1, 2, 4))), gaps  # a slow machine may hear of one late
    # It is given up, and the next one goes on.
    assert json.loads(s.next()[3])["hostname"] == "second.test"
    assert p.until(lambda t: t["sent"] == 1) | {"held": 0} == {
        "sent": 1, "failed": 1, "dropped": 0, "retried": 3, "held": 0}


@pytest.mark.parametrize("status", [400, 401, 404, 429, 499])
def test_what_the_receiver_refuses_is_final(parent, server, status):
    s = server([status, 204])
    p = parent(s.url())
    p.say("deny a.test", "deny b.test")
    assert [json.loads(s.next()[3])["hostname"] for _ in range(2)] == ["a.test", "b.test"]
    state = p.until(lambda t: t["sent"] == 1)
    assert state["failed"] == 1 and state["retried"] == 0


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(parent, server, status):
    other, s = server(), server([status])
    s.elsewhere = f"http://127.0.0.1:{other.port}/metadata"
    p = parent(s.url())
    p.say("deny a.test")
    assert p.until(lambda t: t["failed"] == 1)["retried"] == 0
    assert other.got.empty() and other.connections == 0


def test_a_receiver_that_is_away_is_tried_again(parent, server):
    s = server()
    port = s.port
    s.close()
    p = parent(f"http://127.0.0.1:{port}/hook")
    p.say("deny a.test")
    p.until(lambda t: t["retried"] == 1)
    again = server(port=port)
    assert json.loads(again.next()[3])["hostname"] == "a.test"
    p.until(lambda t: t["sent"] == 1)


def test_sockets_that_the_parent_refuses_are_asked_for_again(parent, server):
    s = server()
    p = parent(s.url())
    p.say("refuse", "deny a.test")
    assert p.until(lambda t: t["retried"] == 1)["held"] == 0
    assert s.connections == 0
    p.say("serve")
    s.next()
    p.until(lambda t: t["sent"] == 1)
    # Each attempt begins with the first address and goes through them.
    assert p.end().split("\n")[:4] == ["connect 0 0", "connect 0 1", "connect 0 2", "connect 0 0"]


def test_a_receiver_that_hangs_is_left_after_5_seconds_and_delays_no_other(parent, server):
    gate = threading.Event()
    slow, fast = server(hold=gate), server()
    p = parent(slow.url(), fast.url())
    began = time.monotonic()
    for i in range(600):
        p.say(f"deny n{i}.test")
        if i % 100 == 99:  # no more at a time than a queue holds
            for j in range(i - 99, i + 1):
                assert json.loads(fast.next()[3])["hostname"] == f"n{j}.test"
    assert time.monotonic() - began < 250  # the other one has five seconds for each
    state = p.until(lambda t: t["sent"] == 600 and t["dropped"] > 0)
    # the queue's length; one that was given up meanwhile made room
    assert 0 <= 600 - 256 - state["dropped"] <= state["failed"]
    first, second = slow.next()[0], slow.next()[0]
    assert 4 < second - first  # 5 s, and a pause before it is tried again
    assert json.loads(slow.got.get()[3])["hostname"] == "n0.test"
    gate.set()
    p.process.stdin.close()
    assert p.process.wait(60) == 0  # at once, whatever hangs


def test_a_receiver_that_closes_costs_no_event_and_no_socket(parent, server):
    s = server(close=True)
    p = parent(s.url())
    for i in range(60):
        p.say(f"deny n{i}.test")
    assert [json.loads(s.next()[3])["hostname"] for _ in range(60)] == [f"n{i}.test" for i in range(60)]
    state = p.until(lambda t: t["sent"] == 60 and t["held"] <= 1)
    assert state["retried"] == state["failed"] == 0 and s.connections == 60


def test_an_idle_connection_that_the_receiver_closed_is_made_again(parent, server):
    s = server()
    p = parent(s.url())
    p.say("deny a.test")
    s.next()
    p.until(lambda t: t["sent"] == 1)
    port = s.port
    s.close()
    again = server(port=port)
    p.say("deny b.test")
    assert json.loads(again.next()[3])["hostname"] == "b.test"
    p.until(lambda t: t["sent"] == 2)


def test_https_is_verified(parent, server, certificate):
    context, ca = certificate
    good, bad_name = server(context=context), server(context=context)
    p = parent(good.url(scheme="https"), bad_name.url(scheme="https", host="other.example"),
               env={"SSL_CERT_FILE": str(ca)})
    p.say("deny a.test")
    assert json.loads(good.next()[3])["hostname"] == "a.test"
    p.until(lambda t: t["sent"] == 1 and t["retried"] >= 1)
    assert bad_name.got.empty()


def test_an_unknown_certificate_gets_nothing(parent, server, certificate):
    s = server(context=certificate[0])
    p = parent(s.url(scheme="https"))
    p.say("deny a.test")
    state = p.until(lambda t: t["failed"] == 1)
    assert state["retried"] == 3 and state["sent"] == 0
    assert s.got.empty()


@pytest.mark.parametrize("name, told", [
    ("\x1b[2J\x1b]0;x\x07.test", None),
    ("<script>alert(1)</script>&\"'\\", None),
    ("'); drop table event; --", None),
    ("x" * 253, None),
    ("a\u202egnp.exe", None),
    (b"bad\xff\xc0.test".decode("utf-8", "surrogateescape"), "bad\ufffd\ufffd.test"),
    ('","hostname":"forged', None),
])
def test_a_hostile_name_stays_text(parent, server, name, told):
    s = server()
    p = parent(s.url(), sandbox='sb"\n<1>')
    p.say(f"deny {name}")
    _, _, _, body = s.next()
    assert all(0x20 <= b < 0x7f for b in body) and b"<" not in body and b"&" not in body
    data = json.loads(body)
    assert data["hostname"] == (told or name.lower())
    assert data["sandboxId"] == 'sb"\n<1>'


def test_it_is_confined(parent, server):
    s = server()
    p = parent(s.url())
    p.say("deny a.test")
    s.next()
    pid = p.ask("pid")
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2" or SET_ASIDE  # a sanitizer lets no seccomp in
    assert {status[k].strip("0") for k in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")} == {""}


def test_a_killed_program_is_followed_by_another(parent, server):
    gate = threading.Event()
    s = server(hold=gate)
    p = parent(s.url())
    p.say("deny a.test", "deny b.test")
    s.next()
    p.say("restart")
    p.state()  # it has
    gate.set()
    p.say("deny c.test")
    assert json.loads(s.next()[3])["hostname"] == "c.test"
    state = p.until(lambda t: t["sent"] == 1)
    assert state["dropped"] == 2, "what the first one had is counted"
    pid = p.ask("pid")
    os.kill(pid, signal.SIGKILL)  # and the parent finds out by itself
    wait_for(lambda: not is_alive(pid))
    p.say("deny d.test")
    time.sleep(0.2)
    p.say("deny e.test")
    last = [json.loads(s.next()[3])["hostname"]]
    while last[-1] != "e.test":
        last.append(json.loads(s.next()[3])["hostname"])
    p.say("state")
    assert "gone: " in p.end()


def test_it_ends_with_its_parent(parent, server):
    s = server()
    p = parent(s.url())
    p.say("deny a.test")
    s.next()
    pid = p.ask("pid")
    p.process.kill()
    p.process.wait()
    p.process.returncode = 0
    wait_for(lambda: not is_alive(pid))


@pytest.mark.parametrize("url", ["ftp://a.test/", "http://", "http:///x", "http://a b/", "a.test", "http://a.test:0/",
                                 "http://a.test:65536/", "http://::1/", "https://a.test:x/", "http://[1.2.3.4]/", ""])
def test_what_is_no_url_is_refused(url):
    p = Parent(url)
    assert "is not an http or https URL" in p.end()
    assert p.process.returncode == 2


def test_it_is_not_for_people():
    done = subprocess.run([PROGRAM], capture_output=True, text=True)
    assert done.returncode == 2 and "is started by Weir" in done.stderr
