# SPDX-License-Identifier: Apache-2.0
"""Deaths at the worst moment of a change: what the caller was told is what is in force, in the kernel and in the file."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import threading
import time

import pytest

from world.sidecar import policy, wait_for


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def posting(side, *rules):
    """A change under way in a thread. Gives the list that its Reply comes into."""
    replies = []

    def post():
        with contextlib.suppress(OSError):
            replies.append(side.call("POST", "/policy", policy(*rules)))
    thread = threading.Thread(target=post)
    thread.start()
    yield replies
    thread.join()


def can_connect(pod, address):
    with pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(10)
        return s.connect_ex((address, 7007)) == 0


def generation(pod):
    return pod.nft("list", "chain", "inet", "opensandbox", "egress")


def test_an_engine_that_dies_before_the_keeper_knows_the_policy(pod, guarded, site):
    """The supervisor sees the death first and starts a successor with the old, wider policy. The caller is told 200 only
    when the new one is in force again."""
    side, told = guarded(), 0
    for _ in range(50):
        side.post(f"allow {site.v4}")
        assert can_connect(pod, site.v4)
        time.sleep(1.1)     # from now on a dead engine is replaced without a delay
        told += one_death(pod, side, site)
        if told == 5:
            return
    pytest.fail(f"the engine could answer before it died {told} times of 50")


def one_death(pod, side, site):
    """Return: whether the engine had told control of the new policy before it died. Otherwise the change has failed."""
    before = generation(pod)
    engine = side.child("engine")
    with posting(side) as replies:
        with stopped(side.pid):
            os.kill(side.pid, signal.SIGCHLD)   # so that it looks for dead children before anything else
            wait_for(lambda: generation(pod) != before or None)
            os.kill(engine, signal.SIGKILL)
            wait_for(lambda: not os.path.exists(f"/proc/{engine}/ns/net"))
        wait_for(lambda: replies, step=0.0002)
        until, opened = time.monotonic() + 0.3, 0
        while time.monotonic() < until:
            opened += can_connect(pod, site.v4)
    reply, rules = replies[0], side.get("/policy").json()["policy"]["egress"]
    if reply.status == 200:
        assert opened == 0 and rules == []
        return True
    assert reply.status == 500 and b"the engine does not answer" in reply.body and [r["target"] for r in rules] == [site.v4]
    return False


@pytest.mark.parametrize("heard", [False, True])
def test_control_dies_before_the_file_is_in_its_place(pod, world, site, heard):
    """The supervisor has the new policy, so it is in force: then the file has it too, as soon as control is back."""
    folder = world.workdir()
    path = folder / "policy.json"
    path.write_text(policy(f"allow {site.name}"))
    side = pod.sidecar(env={"OPENSANDBOX_EGRESS_POLICY_FILE": str(path)})
    control = side.child("control")
    fresh = folder / ".policy.json.weir-new"
    before = generation(pod)
    with posting(side, "allow other.test"), stopped(side.pid):
        wait_for(lambda: generation(pod) != before or None)
        wait_for(fresh.exists)
        os.kill(control, signal.SIGSTOP)
        if heard:   # the supervisor takes it, and nobody is there to hear that
            os.kill(side.pid, signal.SIGCONT)
            time.sleep(0.05)
        os.kill(control, signal.SIGKILL)
    side.wait_replaced("control", control)
    wait_for(lambda: side.healthy() or None)
    shown = [r["target"] for r in side.get("/policy").json()["policy"]["egress"]]
    kept = [r["target"] for r in json.loads(path.read_text())["egress"]]
    assert kept == shown == ["other.test"] and not fresh.exists()
    resolved = pod.probe(["dns", site.name]).result
    assert resolved == "NXDOMAIN"


def die_young(side, times):
    """Let engines die soon after their start, so that the next one is started later and later."""
    for _ in range(times):
        side.wait_replaced("engine", side.kill_child("engine"))


def memfds(pid):
    """What @pid holds of memory."""
    found = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(fd).startswith("/memfd:"):
                found.add(fd.stat().st_ino)
    return found


def fail_a_change(side, pod, *rules):
    """A change whose engine dies when the kernel has it, and has no successor for longer than a caller waits. Return: the
    status."""
    before, held = generation(pod), memfds(side.pid)
    engine = side.child("engine")
    with posting(side, *rules) as replies:
        with stopped(side.pid):
            wait_for(lambda: generation(pod) != before or replies)
            os.kill(engine, signal.SIGKILL)
        wait_for(lambda: memfds(side.pid) != held or replies, step=0.001)   # the supervisor keeps the new policy
        with stopped(side.pid):
            time.sleep(1.3)
    return replies[0].status


def test_a_change_that_fails_for_want_of_an_engine_changes_nothing(pod, world, site):
    """The engine dies after its change and its successor takes longer than a caller waits: 500, and the old policy is in
    force, shown and in the file."""
    path = world.workdir() / "policy.json"
    path.write_text(policy(f"allow {site.name}"))
    side = pod.sidecar(env={"OPENSANDBOX_EGRESS_POLICY_FILE": str(path)})
    for _ in range(40):  # the engine's answer may be quicker than who kills it
        die_young(side, 5)
        wait_for(side.healthy)
        status = fail_a_change(side, pod, "allow other.test")
        wait_for(side.healthy)
        shown = [r["target"] for r in side.get("/policy").json()["policy"]["egress"]]
        kept = [r["target"] for r in json.loads(path.read_text())["egress"]]
        assert kept == shown == (["other.test"] if status == 200 else [site.name]), f"{status}\n{side}"
        assert pod.probe(["dns", site.name]).result == ("NXDOMAIN" if status == 200 else "NOERROR")
        if status == 500:
            break
        side.post(f"allow {site.name}")
    assert status == 500, side
    assert pod.packets() == []
