# SPDX-License-Identifier: Apache-2.0
"""One sandbox of a daemon's was denied too much and is closed; the others go on."""
import json
import os
import pathlib
import signal
import socket
import time

import pytest

from world.expect import name_refused, tcp_refused
from world.sidecar import Flow, policy, wait_for

STOP = {"count": 5, "window": "1m", "action": "stop"}
WHY = "more than 5 denies in 1m"


@pytest.fixture
def both(daemon, pod, other, site):
    for name, ns in (("one", pod), ("two", other)):
        daemon.attach(name, ns)
        reply = daemon.call("POST", f"/sandboxes/{name}/policy", policy(f"allow {site.name}", on_denies=STOP))
        assert reply.status == 200, reply
    return daemon


def closed(daemon, name="one"):
    return daemon.status(name)["closed"]


def test_it_is_closed_alone_and_stays_so(host, both, pod, other, site, denied):
    assert pod.probe(["dns", site.name]).addresses == other.probe(["dns", site.name]).addresses == [site.v4]
    flow, others = Flow(pod, site.v4), Flow(other, site.v4)
    assert flow.say() == others.say() == "got"
    pod.probe(*[["dns", f"n{i}.{denied.name}"] for i in range(6)])
    assert wait_for(lambda: closed(both)) == WHY
    assert flow.say() != "got" and others.say() == "got"
    name_refused(pod.probe(["dns", site.name]))
    tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    assert closed(both, "two") is None and other.probe(["dns", site.name]).addresses == [site.v4]
    reply = both.call("PATCH", "/sandboxes/one/policy", [{"action": "allow", "target": site.name}])
    assert reply.status == 409 and WHY in reply.text
    assert f"closed      {WHY}" in both.weir("status", "one").text and "closed" not in both.weir("status", "two").text
    kept = host.folder / "run" / "sandboxes" / "one" / "policy.json"
    assert json.loads(kept.read_text())["closed"] == WHY
    for child in ("control", "engine"):
        both.kill_child(child)
        wait_for(lambda: closed(both) == WHY)
        name_refused(pod.probe(["dns", site.name]))
    both.kill()
    again = host.daemon()
    wait_for(lambda: set(again.names()) == {"one", "two"})
    assert closed(again) == WHY and closed(again, "two") is None
    name_refused(pod.probe(["dns", site.name]))
    tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    again.set_policy("one", f"allow {site.name}")
    assert closed(again) is None
    assert wait_for(lambda: pod.probe(["dns", site.name]).get("addresses")) == [site.v4]


@pytest.fixture
def group():
    top = next(p for p in (pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup")) if (p / "cgroup.procs").exists())
    path = top / f"weir-test-{os.getpid()}-closed"
    path.mkdir()
    yield path
    (path / "cgroup.kill").write_text("1")
    wait_for(lambda: not (path / "cgroup.procs").read_text())
    path.rmdir()


def test_what_lives_in_its_cgroup_is_killed(host, daemon, group, site, denied):
    done = daemon.weir("attach", "--id", "job", "--cgroup", group)
    assert done.code == 0, f"{done}\n{daemon}"
    reply = daemon.call("POST", "/sandboxes/job/policy", policy(f"allow {site.name}", on_denies=STOP))
    assert reply.status == 200, reply
    member = f"echo $$ > {group}/cgroup.procs; "
    idle = host.start("sh", "-c", member + "trap '' TERM; echo in; sleep 60", uid=0)
    assert idle.line() == "in"
    asks = "".join(f"getent hosts n{i}.{denied.name}; " for i in range(8))
    host.start("sh", "-c", member + asks + "sleep 60", uid=0)
    wait_for(lambda: closed(daemon, "job") == WHY)
    assert wait_for(lambda: idle.process.poll() is not None or None)
    wait_for(lambda: not (group / "cgroup.procs").read_text())
    wait_for(lambda: any("its processes were killed" in line for line in daemon.errors))


@pytest.mark.parametrize("harm", ["broken", "empty", "gone"])
def test_a_policy_that_is_lost_opens_nothing(host, both, pod, other, site, denied, harm):
    """The other sandbox goes on; a policy that somebody sets opens it."""
    state = host.folder / "run" / "sandboxes" / "one"
    both.kill()
    file = state / "policy.json"
    if harm == "gone":
        file.unlink()
    else:
        file.write_text(file.read_text()[:20] if harm == "broken" else "")
    events = host.folder / "events"
    again = host.daemon("--state-dir", events)
    wait_for(lambda: set(again.names()) == {"one", "two"})
    why = closed(again)
    assert why == "its policy can't be read" and closed(again, "two") is None
    assert {d["what"]: d["reason"] for d in again.status("one")["degradations"]}["policy"] == f"the sandbox is closed: {why}"
    assert "policy" not in {d["what"] for d in again.status("two")["degradations"]}
    for one in (site, denied):
        name_refused(pod.probe(["dns", one.name]))
        tcp_refused(pod.probe(["tcp", one.v4, 7007]))
    assert other.probe(["dns", site.name]).addresses == [site.v4]
    assert wait_for(lambda: f"closed: {why}" in again.weir("events", "--state-dir", events, "--json").text)
    again.kill()
    again = host.daemon()
    wait_for(lambda: set(again.names()) == {"one", "two"})
    assert closed(again) == why
    again.set_policy("one", f"allow {site.name}")
    assert closed(again) is None
    assert wait_for(lambda: pod.probe(["dns", site.name]).get("addresses")) == [site.v4]


def test_a_patch_that_meets_the_closing_opens_nothing(host, daemon, pod, site, denied):
    """Control finds both at once: the last byte of the patch, and that too much was denied."""
    daemon.attach("one", pod, "--allow", site.name)
    daemon.set_policy("one", f"allow {site.name}", on_denies=STOP)
    body = json.dumps([{"action": "allow", "target": denied.name}])
    control = daemon.children()["control"]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.socket))
        client.send(f"PATCH /sandboxes/one/policy HTTP/1.1\r\nHost: weir\r\nContent-Length: {len(body)}\r\n\r\n{body[:-1]}".encode())
        assert daemon.answers(), "so the head was read"
        os.kill(control, signal.SIGSTOP)
        pod.probe(*[["dns", f"n{i}.example"] for i in range(8)])
        time.sleep(0.5)  # the engine says so
        client.send(body[-1:].encode())
        os.kill(control, signal.SIGCONT)
        client.settimeout(60)
        assert client.recv(4096)
    assert wait_for(lambda: closed(daemon)) == WHY
    for one in (site, denied):
        name_refused(pod.probe(["dns", one.name]))
