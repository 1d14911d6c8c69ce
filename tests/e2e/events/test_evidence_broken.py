# SPDX-License-Identifier: Apache-2.0
"""A store or NFLOG that can't start, breaks or is taken away: a degradation and a count, and everything else goes on."""
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import struct
import subprocess

import pytest

from world.expect import name_refused, tcp_refused
from world.sidecar import policy, wait_for
from world.store import Store

GROUP = 100
LIMITS = {"events_per_second": "unlimited", "queries_per_second": "unlimited"}


def sidecar(world, host, pod, site, state, *args):
    side = pod.sidecar("--state-dir", str(state), *args, rules=policy(f"allow {site.name}", limits=LIMITS))
    return side, lambda: side.get("/status").json()


def daemon(world, host, pod, site, state, *args):
    d = host.daemon("--state-dir", state, *args)
    d.attach("one", pod)
    d.set_policy("one", f"allow {site.name}", limits=LIMITS)
    return d, lambda: d.status("one")


@pytest.fixture(params=[sidecar, daemon], ids=["sidecar", "daemon"])
def start(request, world, host, pod, site, tmp_path):
    tmp_path.chmod(0o755)

    def run(state, *args):
        return request.param(world, host, pod, site, state, *args)
    return run


def whats(status):
    return {d["what"]: d["reason"] for d in status()["degradations"]}


def stored(pod, state):
    """The names that `weir events` prints."""
    done = subprocess.run([pod.world.weir_path, "events", "--state-dir", state, "--since", "800d", "--json"],
                          capture_output=True, check=False)
    return {json.loads(line)["name"] for line in done.stdout.splitlines()}


def goes_on(pod, site, denied):
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    name_refused(pod.probe(["dns", denied.name]))
    tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))


def ask(pod, denied, count=300):
    pod.probe(["dns_flood", count, f".{pod.world.number()}.{denied.name}"])


def test_a_store_that_cannot_be_made(start, pod, site, denied, tmp_path):
    (tmp_path / "file").write_text("")
    _, status = start(tmp_path / "file" / "state")
    goes_on(pod, site, denied)
    assert "store" in wait_for(lambda: whats(status))
    wait_for(lambda: ask(pod, denied) or status()["storeLostRows"] > 0)
    assert status()["fullIsolation"]


def test_a_disk_that_is_full(start, pod, site, denied, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", state], check=True)
    try:
        _, status = start(state)
        wait_for(lambda: ask(pod, denied) or whats(status))
        assert "store" in whats(status)
        goes_on(pod, site, denied)
        wait_for(lambda: ask(pod, denied) or status()["storeLostRows"] > 0)
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_a_folder_that_is_taken_away_under_it(start, pod, site, denied, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    _, status = start(state)
    ask(pod, denied, 3)
    wait_for((state / "events.db").exists)
    assert whats(status) == {}
    away = state.rename(tmp_path / "away")     # at once: whoever writes makes files there
    shutil.rmtree(away)
    wait_for(lambda: ask(pod, denied, 5) or "store" in whats(status), step=0.2)
    goes_on(pod, site, denied)
    assert status()["fullIsolation"]


def take_group(pod):
    """Somebody else reads what is refused: NFLOG gives a group to one alone."""
    sock = pod.ns.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    sock.bind((0, 0))
    bind = struct.pack("=BBH", 0, 0, socket.htons(GROUP)) + struct.pack("=HHB3x", 5, 1, 1)
    sock.send(struct.pack("=IHHII", 16 + len(bind), 4 << 8 | 1, 5, 1, 0) + bind)
    assert struct.unpack_from("=i", sock.recv(4096), 16)[0] == 0
    return sock


def test_a_group_of_nflog_that_is_taken(start, pod, site, denied, tmp_path):
    with take_group(pod):
        _, status = start(tmp_path / "state")
        goes_on(pod, site, denied)
        assert "nflog" in whats(status)


def test_a_helper_that_is_killed_again_and_again(start, pod, site, denied, tmp_path, world):
    """weir-review's end is nobody else's."""
    d, status = start(tmp_path / "state", "--review-command", "/bin/true")
    for _ in range(3):
        name = "weir-review" if hasattr(d, "child") else "review"
        wait_for(lambda: d.children().get(name))
        old = d.children()[name]
        subprocess.run(["kill", "-9", str(old)], check=True)
        wait_for(lambda: d.children().get(name, old) != old)
        goes_on(pod, site, denied)
    assert d.healthy() and whats(status) == {}


def test_files_that_are_taken_away_are_begun_anew(tmp_path):
    """What is written behind nobody's name would be lost in silence."""
    with Store(tmp_path / "state") as store:
        store.put("one.test")
        store.drain()
        for path in (tmp_path / "state").iterdir():
            path.unlink()
        store.put("two.test")
        store.drain()
        assert store.rows("SELECT name FROM event") == [("two.test",)]
        assert store.state()["rows"] == 2


def test_a_clock_that_is_a_year_ahead_deletes_nothing(world, host, pod, site, denied, tmp_path):
    """Over restarts, with rows that were written by that clock. Here the past is a year ago, and the clock is right."""
    state = tmp_path / "state"
    side, _ = sidecar(world, host, pod, site, state)
    ask(pod, denied, 30)
    wait_for(lambda: len(stored(pod, state)) >= 20)
    assert side.stop() == 0
    year = 365 * 86400 * 1000
    with contextlib.closing(sqlite3.connect(state / "events.db")) as db, db:
        db.execute("UPDATE event SET ts = ts - ?", (year,))
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'age'").fetchone():
            db.execute("UPDATE age SET trusted_ms = trusted_ms - ?", (year,))
    before = stored(pod, state)
    assert len(before) >= 20
    for i in range(3):
        side, _ = sidecar(world, host, pod, site, state)
        pod.probe(["dns", f"again{i}.{denied.name}"])
        wait_for(lambda i=i: f"again{i}.{denied.name}" in stored(pod, state))
        assert side.stop() == 0
    assert before <= stored(pod, state)


def test_a_store_that_is_cut_to_nothing(pod, start, site, denied, tmp_path):
    """While it is written: what comes is stored anew, in a file that can be read, and that is said."""
    state = tmp_path / "state"
    _, status = start(state)
    ask(pod, denied, 30)
    wait_for(lambda: len(stored(pod, state)) >= 20)
    os.truncate(state / "events.db", 0)
    pod.probe(["dns", f"after.{denied.name}"])
    wait_for(lambda: "store" in whats(status))
    assert "moved aside" in whats(status)["store"]
    pod.probe(["dns", f"later.{denied.name}"])
    wait_for(lambda: f"later.{denied.name}" in stored(pod, state))
    goes_on(pod, site, denied)
    assert status()["fullIsolation"]
