# SPDX-License-Identifier: Apache-2.0
"""A run's API, by its own socket: the paths and answers of the daemon's for one sandbox, and a reader of its own."""
import concurrent.futures
import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import tempfile
import time

import jsonschema
import pytest

from world import expect
from world.guarded import Run
from world.openapi import OPENAPI
from world.sidecar import policy, wait_for

BELOW = "/sandboxes/{sandbox}"
# What a run has: the description of docs/openapi.yaml lists it.
LISTED = re.search(r"A `weir run` has (.*?) and nothing else", OPENAPI["info"]["description"], re.S)[1]
HAS = set(re.findall(r"`(/[^`]*)`", LISTED)) - {"/sandboxes", "/sandboxes/{sandbox}"}


@pytest.fixture(name="box")
def fixture_box(world):
    with contextlib.closing(Run("run", world, policy())) as box:
        box.probe(["dns", "nowhere.test"])  # the command runs
        yield box


def validate(name, value):
    jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": OPENAPI["components"]}).validate(value)


def say(box, text):
    """What comes for these bytes, until the run hangs up."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(box.socket)
        sock.settimeout(30)
        sock.sendall(text if isinstance(text, bytes) else text.encode())
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode()


def head(box, method, path, *lines):
    return "\r\n".join([f"{method} /sandboxes/{box.id}{path} HTTP/1.1", "Host: x", *lines, "", ""])


def test_it_has_what_is_documented_and_no_more(box):
    assert {"/policy", "/status", "/review"} < HAS
    paths = {path.removeprefix(BELOW): set(item) for path, item in OPENAPI["paths"].items() if path.startswith(BELOW + "/")}
    assert HAS <= set(paths)
    for path, methods in paths.items():
        for method in methods & {"get", "post", "put", "patch", "delete"}:
            reply = box.send(method.upper(), path.replace("{id}", "7"), "no policy" if method != "get" else None)
            wanted = {404} if path not in HAS or "{id}" in path else {200, 400}
            assert reply.status in wanted, (method, path, reply)
    for path in ("/status", "/policy", "/ui/", "/openapi.yaml", "/credential-vault", "/sandboxes/another/status"):
        assert say(box, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").startswith("HTTP/1.1 404 "), path
    for method in ("PUT", "DELETE"):
        assert box.send(method, "").status == 405
    assert box.probe(["dns", "nowhere.test"]).result == "NXDOMAIN"


def test_its_answers_are_the_documented_ones(box, site):
    box.change(policy(f"allow {site.name}", f"deny deny.{site.name}", verify="dns"))
    expect.name_refused(box.probe(["dns", f"deny.{site.name}"]))
    validate("Denies", wait_for(lambda: (d := box.send("GET", "/denies").json())["denies"] and d))
    [denied] = [d for d in box.send("GET", "/denies?limit=9").json()["denies"] if d["name"] == f"deny.{site.name}"]
    assert (denied["sandbox"], denied["rule"]) == (box.id, f"deny deny.{site.name}"), denied
    assert box.send("GET", "/denies?limit=0").status == 400
    assert box.send("GET", f"/policy/explain?target={site.name}").json()["action"] == "allow"
    assert box.send("GET", "/healthz").body == b"ok"
    validate("ReviewTasks", box.send("GET", "/review").json())
    status = box.send("GET", "/status").json()
    own = {key: status.pop(key) for key in ("id", "kind", "run", "pid", "denies")}
    validate("Status", status)
    assert (own["id"], own["kind"], status["policyUpdates"], status["degradations"]) == (box.id, "run", 1, [])
    [listed] = json.loads(say(box, "GET /sandboxes HTTP/1.1\r\nHost: x\r\n\r\n").partition("\r\n\r\n")[2])["sandboxes"]
    assert listed == box.send("GET", "").json() and own.items() <= listed.items()


def test_rules_are_taken_away(box, site):
    box.change(policy(f"allow {site.name}", verify="dns"))
    assert box.probe(["connect", site.name, 7007]).result == "ok"
    assert box.send("DELETE", "/policy", json.dumps(["another.test"])).json()["reason"] == "no matching targets found"
    assert box.send("DELETE", "/policy", json.dumps([site.name])).status == 200
    expect.name_refused(box.probe(["dns", site.name]))
    box.assert_silent()
    assert box.send("GET", "/status").json()["policyUpdates"] == 2


def test_a_policy_is_read_as_strictly_as_a_file(box, site):
    """The daemon's API ignores keys that it doesn't know, as the reference does."""
    reply = box.send("PUT", "/policy", json.dumps({"egres": [{"action": "allow", "target": site.name}], "defaultAction": "allow"}))
    assert reply.status == 400 and b"'egres'" in reply.body, reply
    expect.name_refused(box.probe(["dns", site.name]))
    ends = [{"action": "allow", "target": site.name, "untill": "2001-01-01T00:00:00Z"}]
    reply = box.send("PATCH", "/policy", json.dumps(ends))
    assert reply.status == 400 and b"invalid patch rules: unknown key 'egress[].untill'" in reply.body, reply
    expect.name_refused(box.probe(["dns", site.name]))
    assert box.send("GET", "/status").json()["policyFailures"] == 2
    assert box.send("PUT", "/policy", f"egress:\n- {{action: allow, target: {site.name}}}\n").status == 200
    assert box.probe(["dns", site.name]).addresses


@pytest.mark.parametrize("lines, status", [
    (("Content-Length: 2", "Content-Length: 2"), 400), (("Transfer-Encoding: chunked",), 400), (("Content-Length : 2",), 400),
    (("Content-Length: 2", "Transfer-Encoding: chunked"), 400), (("Host: a", "Host: b"), 400), (("Content-Length: 16777217",), 413),
    (("Content-Length: -1",), 400), (("Host: x",), 400), (("X: a\n b",), 400), (("X: " + "y" * 9000,), 431)])
def test_what_two_readers_could_read_differently_is_read_by_nobody(box, site, lines, status):
    text = head(box, "PUT", "/policy", *lines)
    body = "" if status in (413, 431) else policy(f"allow {site.name}")
    assert say(box, text.rstrip("\r\n") if status == 431 else text + body).startswith(f"HTTP/1.1 {status} ")
    assert box.send("GET", "/status").json()["policyUpdates"] == 0
    expect.name_refused(box.probe(["dns", site.name]))


def test_requests_in_pieces_and_of_no_sense(box):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(box.socket)
        sock.settimeout(30)
        for byte in head(box, "GET", "/healthz"):
            sock.sendall(byte.encode())
        assert b"".join(iter(lambda: sock.recv(9999), b"")).endswith(b"\r\n\r\nok")
    for text in ("\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "G" * 99 + " / HTTP/1.1\r\n\r\n", b"\0\xff \n\r\n\r\n", f"GET /sandboxes/{box.id}/healthz\0x HTTP/1.1\r\n\r\n"):
        with contextlib.suppress(ConnectionResetError):
            assert not say(box, text).startswith("HTTP/1.1 2"), text
    for text, status in (("GET x HTTP/1.1", 400), ("GET /%00 HTTP/1.1", 400), ("GET //sandboxes HTTP/1.1", 301), ("POST * HTTP/1.1", 400)):
        assert say(box, text + "\r\nHost: x\r\n\r\n").startswith(f"HTTP/1.1 {status} "), text
    for text in ("GET /sandboxes HTTP/1.1\r\n\r\n", "GET /sandboxes HTTP/1.1\nHost: x\n\r\n\r\n", "GET /sandboxes HTTP/3\r\nHost: x\r\n\r\n"):
        assert say(box, text).startswith("HTTP/1.1 400 "), text
    asked = say(box, head(box, "HEAD", "/policy/explain?target=a.test"))
    assert asked.startswith("HTTP/1.1 200 ") and asked.endswith("\r\n\r\n") and re.search("^Content-Length: [1-9]", asked, re.M), asked


def test_an_engine_that_says_nothing_is_not_waited_for_for_ever(box, world, site):
    """What was asked of it is answered, the status tells of it, and what the engine does later holds."""
    _, engine = world.guards(box.started.pid)
    os.kill(engine, signal.SIGSTOP)
    try:
        reply = box.send("PUT", "/policy", policy(f"allow {site.name}", verify="dns"))
        assert reply.status == 500 and b"the engine does not answer" in reply.body, reply
        status = box.send("GET", "/status").json()
        assert [d["what"] for d in status["degradations"]] == ["engine"] and not status["fullIsolation"], status
        assert status["policyUpdates"] == 0
        assert b"another change is under way" in box.send("PUT", "/policy", policy()).body
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_for(lambda: box.send("GET", "/status").json()["policyUpdates"] == 1)
    assert box.send("GET", "/policy").json()["policy"]["egress"][0]["target"] == site.name
    assert box.probe(["connect", site.name, 7007]).result == "ok"


def test_a_change_that_comes_late_is_heard_amid_another_question(box, world, site):
    """The status is asked for while the policy that it would show is replaced."""
    _, engine = world.guards(box.started.pid)
    os.kill(engine, signal.SIGSTOP)
    try:
        reply = box.send("PUT", "/policy", policy(f"allow {site.name}", verify="dns"))
        assert reply.status == 500 and b"the change may still take effect" in reply.body, reply
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(box.send, "GET", "/status")
            time.sleep(1)
            os.kill(engine, signal.SIGCONT)
            status = asked.result().json()
    finally:
        os.kill(engine, signal.SIGCONT)
    assert (status["policyUpdates"], status["rules"], status["degradations"]) == (1, 1, []), status
    assert box.probe(["connect", site.name, 7007]).result == "ok"


def test_a_run_starts_whoever_keeps_the_lock_of_its_directory(world):
    """A command of `weir run --cgroup` can keep it: it is a process of the user's."""
    with tempfile.TemporaryDirectory(prefix="weir-test-", dir="/run") as folder:
        os.mkdir(f"{folder}/weir", 0o700)
        lock = os.open(f"{folder}/weir", os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = world.run("true", options=("--no-config", "--id", f"locked-{world.number()}"), env={"XDG_RUNTIME_DIR": folder})
        finally:
            os.close(lock)
    assert done.code == 0, done


def test_an_id_stays_taken_whoever_keeps_the_lock(world):
    name = f"locked-{world.number()}"
    with tempfile.TemporaryDirectory(prefix="weir-test-", dir="/run") as folder:
        more = {"options": ("--no-config", "--id", name), "env": {"XDG_RUNTIME_DIR": folder}}
        with world.run_start("/bin/cat", **more) as first:
            wait_for(lambda: os.path.exists(f"{folder}/weir/{name}.sock"))
            lock = os.open(f"{folder}/weir", os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                done = world.run("/bin/true", **more)
            finally:
                os.close(lock)
            first.kill()
    assert done.code == 125 and f"'{name}' is a run that is under way" in done.messages, done
