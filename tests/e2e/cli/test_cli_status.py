# SPDX-License-Identifier: Apache-2.0
"""What operators see: ps, status, policy show."""
import http.server
import json
import os
import re
import signal
import socketserver
import threading

from world.sidecar import wait_for

RAW = "import socket, time\ns = socket.socket(2, 3, 1)\nprint('open', flush=True)\ntime.sleep(60)\n"


def row(daemon, name):
    return next(line.split() for line in daemon.weir("ps").text.splitlines() if line.startswith(name + " "))


def test_ps_has_what_is_enforced_and_denied(daemon, pod, other, site, denied):
    (daemon.host.folder / "tls.yaml").write_text("verify: tls\n")
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--policy", daemon.host.folder / "tls.yaml")
    head, *_ = daemon.weir("ps").text.splitlines()
    assert head.split() == ["ID", "KIND", "MODE", "POLICY", "RULES", "DENIES", "WHERE"]
    assert row(daemon, "one") == ["one", "netns", "dns+nftables", "enforcing", "1", "0", pod.ns.path]
    assert row(daemon, "two") == ["two", "netns", "dns+nftables+tls", "deny_all", "0", "0", other.ns.path]
    pod.probe(["dns", denied.name], ["dns", denied.name], ["tcp", "93.9.9.9", 443])
    wait_for(lambda: row(daemon, "one")[5] == "3")
    assert row(daemon, "two")[5] == "0"


def test_status_of_one(daemon, pod, site, denied):
    daemon.attach("one", pod, "--allow", site.name)
    pod.probe(["dns", site.name], ["dns", denied.name])

    def shown():
        lines = daemon.weir("status", "one").text.splitlines()
        return {line.split(None, 1)[0]: line.split(None, 1)[1] for line in reversed(lines) if " " in line}

    wait_for(lambda: shown()["denies"] == "1")
    found = shown()
    assert (found["id"], found["netns"]) == ("one", pod.ns.path)
    assert found["isolation"].startswith("full, dns+nftables, since 20")
    assert re.fullmatch("enforcing, rules: 1, generation [0-9]+, changes: 0", found["policy"]), found
    assert re.fullmatch(r"addresses: [1-9], names: [1-9]", found["learned"]), found
    assert (found["queries"], found["queries_denied"]) == ("2", "1") and "flows_limited" not in found
    machine = daemon.weir("status", "--json", "one").json()
    assert machine["status"]["counters"]["queries_denied"] == 1 and machine["kind"] == "netns"


def test_status_of_all_has_a_line_each_and_what_is_degraded(daemon, pod, other):
    daemon.attach("one", pod)
    daemon.attach("two", other)
    # a raw socket, as a container with NET_RAW has them
    raw = other.start("/usr/bin/python3", "-c", RAW, uid=0, caps=("net_raw",))
    assert raw.line() == "open"
    lines = daemon.weir("status").text.splitlines()
    assert lines[0].startswith("weir daemon ") and lines[0].endswith("sandboxes: 2, engines: 1, engine restarts: 0")
    assert lines[1].split() == ["one", "full", "dns+nftables"]
    assert lines[2].split() == ["two", "degraded", "dns+nftables"]
    assert lines[3].startswith("    raw-sockets: ")
    machine = daemon.weir("status", "--json").json()
    assert [s["id"] for s in machine["sandboxes"]] == ["one", "two"]
    assert machine["sandboxes"][0]["status"]["fullIsolation"] is True and machine["status"]["engineRestarts"] == 0


class GoneMeanwhile(http.server.BaseHTTPRequestHandler):
    """A daemon whose first sandbox goes between the list and its status."""
    STATUS = {"fullIsolation": True, "mode": "dns+nftables"}
    ANSWERS = {"/status": {"version": "1"}, "/sandboxes/there/status": STATUS,
               "/sandboxes": {"sandboxes": [{"id": "gone", "kind": "netns"}, {"id": "there", "kind": "netns"}]}}

    def do_GET(self):
        answer = self.ANSWERS.get(self.path)
        body = json.dumps(answer or {"code": "NOT_FOUND", "message": "no such sandbox"}).encode()
        self.wfile.write(b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                         % (200 if answer else 404, len(body)) + body)

    def address_string(self):
        return "unix"


def test_a_sandbox_that_goes_meanwhile_hides_no_other(world):
    path = world.workdir() / "s"
    with socketserver.ThreadingUnixStreamServer(str(path), GoneMeanwhile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            done, machine = world.weir("status", "--socket", path), world.weir("status", "--json", "--socket", path)
        finally:
            server.shutdown()
    assert done.code == 0 and [line.split()[0] for line in done.text.splitlines()] == ["weir", "there"] and not done.messages, done
    assert machine.code == 0 and [one["id"] for one in machine.json()["sandboxes"]] == ["there"], machine


def test_a_run_that_does_not_answer_is_listed(world):
    """And the others behind it."""
    names = [f"{word}-{os.getpid()}" for word in ("runs", "stopped")]
    first, run = [world.run_start("/bin/sh", "-c", "echo up; exec cat", options=("--id", name)) for name in names]
    with first, run:
        assert first.line() == run.line() == "up"
        run.signal(signal.SIGSTOP)
        try:
            for verb in ("ps", "status"):
                lines = {line.split()[0]: line for line in world.weir(verb).text.splitlines()}
                assert names[0] in lines and " no answer" in lines[names[1]], lines
                listed = {one["id"]: one["mode"] for one in world.weir(verb, "--json").json()["sandboxes"]}
                assert listed[names[1]] == "no answer" and "dns" in listed[names[0]], listed
        finally:
            run.signal(signal.SIGCONT)


def test_a_policy_is_shown_and_set_back(daemon, pod, site):
    daemon.attach("one", pod, "--allow", site.name)
    text = daemon.weir("policy", "show", "--id", "one").text
    assert [r["target"] for r in json.loads(text)["egress"]] == [site.name]
    file = daemon.host.folder / "again.json"
    file.write_text(text)
    socket = ("--socket", daemon.socket)
    assert daemon.weir("policy", "set", *socket, "one", file).code == 0
    assert daemon.weir("policy", "show", *socket, "--id", "one").text == text
    (daemon.host.folder / "more.yaml").write_text("egress:\n  - {action: allow, target: more.test}\n")
    assert daemon.weir("policy", "patch", *socket, "one", daemon.host.folder / "more.yaml").code == 0
    assert [r["target"] for r in json.loads(daemon.weir("policy", "show", "--id", "one").text)["egress"]] == [
        "more.test", site.name]


def test_what_is_not_there_is_said(daemon, pod):
    daemon.attach("one", pod)
    for verb in (["status", "two"], ["policy", "show", "--id", "two"], ["detach", "two"]):
        done = daemon.weir(*verb)
        assert done.code == 125 and "no such sandbox: 'two'" in done.messages, done
    for verb in (["status", "../x"], ["policy", "show", "--id", "a b"], ["status", "one", "two"], ["detach"],
                 ["policy", "show", "--id", "one", "x.yaml"], ["policy", "check", "--id", "one"],
                 ["policy", "check", "--socket", "/x"]):
        assert daemon.weir(*verb).code == 2, verb
    assert daemon.weir("status", "--socket", "/nothing").code == 125
