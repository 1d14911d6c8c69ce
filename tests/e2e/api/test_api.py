# SPDX-License-Identifier: Apache-2.0
"""The API on the unix socket: who may ask, and what of whom."""
import json
import os
import pathlib
import re
import socket
import subprocess

import pytest

from world.sidecar import wait_for

ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
    s.sendall(b"GET /sandboxes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    print(s.recv(99).decode().split("\\r")[0] or "closed")
except OSError as e:
    print(type(e).__name__)
"""


def ask_as(daemon, *who):
    done = subprocess.run(["setpriv", *who, "--", "/usr/bin/python3", "-IS", "-c", ASK, daemon.socket],
                          capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_only_root_may_ask(daemon, host):
    for folder in (host.folder, host.world.folder):
        folder.chmod(0o755)
    assert ask_as(daemon, "--reuid=0") == "HTTP/1.1 200 OK"
    assert ask_as(daemon, "--reuid=1000", "--regid=1000", "--clear-groups") == "PermissionError"
    # and a file mode that is too wide makes nobody root
    daemon.socket.chmod(0o666)
    assert ask_as(daemon, "--reuid=1000", "--regid=1000", "--clear-groups") in ("closed", "ConnectionResetError",
                                                                                "BrokenPipeError")


def test_members_of_the_group_may_ask(host):
    for folder in (host.folder, host.world.folder):
        folder.chmod(0o755)
    group = host.folder / "group"
    group.write_text("root:x:0:\nweir:x:4242:\n")
    daemon = host.daemon(group=group)
    assert (daemon.socket.stat().st_gid, daemon.socket.stat().st_mode & 0o777) == (4242, 0o660)
    assert ask_as(daemon, "--reuid=1000", "--regid=1000", "--groups=7,4242") == "HTTP/1.1 200 OK"
    assert ask_as(daemon, "--reuid=1000", "--regid=4242", "--clear-groups") == "HTTP/1.1 200 OK"
    assert ask_as(daemon, "--reuid=1000", "--regid=1000", "--groups=7") == "PermissionError"
    daemon.socket.chmod(0o666)
    assert ask_as(daemon, "--reuid=1000", "--regid=1000", "--groups=7") in ("closed", "ConnectionResetError",
                                                                            "BrokenPipeError")


def test_what_is_there(daemon, pod, site):
    assert daemon.get("/sandboxes").json() == {"sandboxes": []}
    daemon.attach("one", pod, "--allow", site.name)
    one, = daemon.get("/sandboxes").json()["sandboxes"]
    assert (one["id"], one["kind"], one["netns"], one["rules"]) == ("one", "netns", pod.ns.path, 1)
    assert daemon.get("/sandboxes/one").json() == one
    assert daemon.get("/sandboxes/one").text.endswith("}\n")
    assert daemon.get("/sandboxes/one/policy").json()["policy"]["egress"][0]["target"] == site.name
    assert daemon.get("/sandboxes/one/healthz").text == "ok"
    assert 'sandbox_id="one"' in daemon.get("/sandboxes/one/metrics").text
    pod.probe(["dns", site.name], ["dns", "denied.test"])
    top = daemon.get("/status").json()
    assert top["fullIsolation"] is True and top["degradations"] == []
    assert (top["counters"]["queries"], top["counters"]["queries_denied"]) == (2, 1)
    assert re.search(r"^\w+queries_denied_total 1$", daemon.get("/metrics").text, re.M)
    listing = daemon.weir("ps").text.splitlines()
    assert len(listing) == 2 and listing[1].split()[:2] == ["one", "netns"]
    (shown,) = daemon.weir("ps", "--json").json()["sandboxes"]
    assert {**shown, "denies": 0} == one  # what was asked for since may be counted already


@pytest.mark.parametrize("path", ["/policy", "/denies", "/sandboxes/none/policy", "/sandboxes/none", "/sandboxes//policy",
                                  "/sandboxes/" + "x" * 64 + "/policy", "/sandboxes/one/nothing", "/sandboxes/one/sandboxes",
                                  "/sandboxes/two/../policy", "/credential-vault/x"])
def test_what_is_not_there(daemon, pod, path):
    daemon.attach("one", pod)
    assert daemon.get(path).status in (301, 307, 404), path


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"netns": 5}', '{"netns": "/x", "more": 1}',
                                  '{"netns": "/x", "netns": "/y"}', '{"netns": "' + "/x" * 300 + '"}',
                                  '{"netns": "/etc/passwd", "policy": {"egress": 5}}'])
def test_a_bad_body_attaches_nothing(daemon, body):
    assert daemon.call("PUT", "/sandboxes/one", body).status == 400
    assert daemon.names() == [] and daemon.healthy()


def test_a_refused_attach_says_why(daemon):
    reply = daemon.call("PUT", "/sandboxes/one", {"netns": "/etc/passwd"})
    assert reply.status == 500 and reply.json()["error"] == "failed_safety_setup"
    assert "no network namespace" in reply.json()["reason"]
    wait_for(lambda: any("failed_safety_setup" in line for line in daemon.lines))


def test_a_launch_that_fails_is_an_event(daemon, pod):
    found = events(daemon, "/events", ["bad"],
                   lambda: daemon.weir("attach", "--id", "bad", "--netns", daemon.pid, "--allow", "a.test"))
    assert (found[0]["action"], found[0]["layer"], found[0]["name"]) == ("panic", "launch", "bad")
    assert found[0]["reason"].startswith("failed_safety_setup: ")
    assert found[0]["reason"].endswith("own network namespace")


def test_events_are_stored(host, pod, denied):
    daemon = host.daemon("--state-dir", host.folder / "deep" / "state")
    daemon.attach("one", pod)
    pod.probe(["dns", denied.name])
    wait_for(lambda: daemon.denies("one"))
    assert daemon.status("one")["degradations"] == []
    assert daemon.stop() == 0
    files = list((host.folder / "deep" / "state").iterdir())
    assert any(denied.name.encode() in f.read_bytes() for f in files), files


def test_without_a_word_events_are_stored_where_everybody_looks(host, pod, denied):
    """On a /var/lib/weir of its own."""
    there = pathlib.Path("/var/lib/weir")
    mine = not there.exists()
    own = ("unshare", "--mount", "sh", "-ec", f'mkdir -p {there}; mount -t tmpfs none {there}; exec "$@"', "sh")
    try:
        daemon = host.daemon(env={"WEIR_STATE_DIR": ""}, way=own)
        daemon.attach("one", pod)
        pod.probe(["dns", denied.name])
        store = pathlib.Path(f"/proc/{daemon.pid}/root/{there}")
        wait_for(lambda: any(denied.name.encode() in f.read_bytes() for f in store.glob("*")))
    finally:
        if mine:
            there.rmdir()


def events(daemon, path, wanted, then):
    """What the stream at @path has told until it has told of the names @wanted, after @then()."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(daemon.socket))
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = sock.recv(65536)
        then()
        while True:
            found = [json.loads(line[6:]) for line in data.decode().split("\n")[:-1] if line.startswith("data: ")]
            if set(wanted) <= {e["name"] for e in found}:
                return found
            data += sock.recv(65536)


def test_events_are_of_one_or_of_all(daemon, pod, other, site, denied):
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other)

    def ask(name):
        other.probe(["dns", f"two.{name}"], ["tcp", "93.9.9.9", 443])
        pod.probe(["dns", f"one.{name}"])
    first, second = f"first.{denied.name}", f"second.{denied.name}"
    found = events(daemon, "/sandboxes/one/events", [f"one.{first}"], lambda: ask(first))
    assert {e["sandbox"] for e in found} == {"one"} and {e["name"] for e in found} == {f"one.{first}"}
    found = events(daemon, "/events", [f"one.{second}", f"two.{second}"], lambda: ask(second))
    assert {e["sandbox"] for e in found} == {"one", "two"}


def test_a_sandbox_in_a_flood_takes_no_event_of_another(daemon, pod, other, denied):
    daemon.attach("one", pod)
    daemon.attach("two", other)
    pod.probe(["dns", denied.name])
    other.probe(*[["dns", f"flood-{i}.test"] for i in range(300)])
    assert denied.name in {d["name"] for d in daemon.denies("one")}


def test_without_a_daemon_nothing_is_said_to_be_guarded(daemon, pod):
    assert daemon.stop() == 0
    done = daemon.weir("attach", "--id", "one", "--netns", pod.ns.path)
    assert done.code == 125 and "failed_safety_setup" in done.messages
    assert daemon.weir("detach", "one").code == 125 and daemon.weir("ps").code == 125
    assert os.path.exists(pod.ns.path)
