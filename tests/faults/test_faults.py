# SPDX-License-Identifier: Apache-2.0
"""Faults of every kind, in a sidecar and in a daemon's sandboxes: nothing gets out, and what was there is kept.

An app asks for a name all the time and tries a forbidden address, while a connection is open. The table says for how
long names were away; no test judges that, for it is the machine's, but each has to be over.
"""
import contextlib
import json
import os
import resource
import signal
import sqlite3
import subprocess

import pytest

from world.daemon import Host
from world.member import Member, Tree, cgroup_root
from world.sidecar import Flow, policy, wait_for
from world.world import RESOLVER4

KINDS = ["sidecar", "netns", "cgroup", "uid"]
UID = 1903
ROUNDS = 5
RECOVERS = 60

# Asks @name every 5 ms and tries @forbidden. A line on stdin is answered with the longest time without an answer since
# the last one, in ms.
WATCH = r"""
import json, select, socket, struct, sys, time
name, server, forbidden = sys.argv[1:]
labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.setblocking(False)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
last, longest, sent = time.monotonic(), 0.0, 0
print("up", flush=True)
while True:
    for call in (lambda: asking.sendto(query, (server, 53)), lambda: udp.sendto(b"leak", (forbidden, 9999))):
        try:
            call()
        except OSError:
            pass
    tcp = socket.socket()
    tcp.setblocking(False)
    tcp.connect_ex((forbidden, 443))
    tcp.close()
    sent += 1
    time.sleep(0.005)  # far below the limit of queries
    readable = select.select([asking, sys.stdin], [], [], 0)[0]
    if asking in readable:
        try:
            reply = asking.recv(2048)
            if reply[3] & 15 == 0 and reply[7] > 0:
                now = time.monotonic()
                longest, last = max(longest, now - last), now
        except OSError:
            pass
    if sys.stdin in readable:
        if not sys.stdin.readline():
            break
        waiting = time.monotonic() - last
        print(json.dumps([round(1000 * max(longest, waiting), 1), round(1000 * waiting, 1), sent]), flush=True)
        longest = 0.0
"""


class Sandbox:
    """Of one @kind, and what is around it."""

    def __init__(self, kind, world, pod, host, tree, site, denied, folder):
        self.kind, self.world, self.site, self.denied, self.folder = kind, world, site, denied, folder
        self.pod, self.host = pod, host
        self.state = folder / "state"
        if kind in ("sidecar", "netns"):
            self.app, self.link = pod, pod
        else:
            self.link = host
            self.app = Member(host, tree.cgroup("slice").below("job") if kind == "cgroup" else None,
                              **({"uid": UID} if kind == "uid" else {}))
        # what gets out is seen: nobody guards it yet
        self.app.probe(["udp", denied.v4, 9999])
        wait_for(lambda: self.link.packets(dst=denied.v4))
        self.before = len(self.link.packets(dst=denied.v4))
        self.start()
        if kind != "sidecar":
            where = {"netns": {"netns": pod.ns.path}, "uid": {"uid": UID}}.get(kind) or {"cgroup": str(self.app.cgroup.path)}
            document = json.loads(policy(f"allow {site.name}", f"allow *.{site.name}"))
            reply = self.boss.call("PUT", "/sandboxes/one", {**where, "policy": document})
            assert reply.status == 201, f"{reply}\n{self.boss}"

    def start(self):
        args = ("--state-dir", str(self.state))
        if self.kind == "sidecar":
            self.boss = self.pod.sidecar(*args, rules=policy(f"allow {self.site.name}", f"allow *.{self.site.name}"))
        else:
            self.boss = self.host.daemon(*args)

    def child(self, name):
        return wait_for(lambda: self.boss.children().get(name))

    def packets_out(self):
        return len(self.link.packets(dst=self.denied.v4)) - self.before

    def check_answer(self):
        answer = self.app.probe(["dns", self.site.name])
        assert answer.addresses == [self.site.v4], dict(answer)

    def events(self):
        """The denied names that are stored, here or in a file that was put aside."""
        found = set()
        for path in sorted(self.state.glob("events.db*")):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                found |= {name for name, in db.execute("SELECT name FROM event WHERE name IS NOT NULL")}
        return found

    def close(self):
        for one in (self.watch, self.flow):
            one.close()


class Watch:
    """What the app that asks and tries says; the longest time without an answer since begin()."""

    def __init__(self, box):
        self.longest = 0.0
        self.started = box.app.start("/usr/bin/python3", "-IS", "-c", WATCH, box.site.name, RESOLVER4, box.denied.v4)
        assert self.started.line() == "up"

    def begin(self):
        self._ask()
        self.longest = 0.0

    def _ask(self):
        self.started.say("\n")
        longest, waiting, tries = json.loads(self.started.line())
        self.longest = max(self.longest, longest)
        return waiting, tries

    def is_answered(self):
        return self._ask()[0] < 30

    def tries(self):
        return self._ask()[1]

    def close(self):
        self.started.kill()


@pytest.fixture(name="box", params=KINDS)
def fixture_box(request, world, pod, site, denied, tmp_path):
    world.site(f"*.{site.name}")
    tmp_path.chmod(0o755)
    if request.param in ("cgroup", "uid") and not cgroup_root():
        pytest.skip("no cgroup v2 here")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", state], check=True)
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "-l", state], check=True)
        host = stack.enter_context(Host(world))
        tree = Tree()
        stack.callback(tree.close)
        stack.callback(host.close)
        box = Sandbox(request.param, world, pod, host, tree, site, denied, tmp_path)
        box.check_answer()
        box.flow, box.watch = Flow(box.app, site.v4), Watch(box)
        assert box.flow.say() == "got"
        stack.callback(box.close)
        yield box


# -- faults: each is one round; what it gives, if anything, ends it -----------------------------------------------

def signalled(box, name, number):
    """Another process has taken the place of the one that got the signal."""
    old = box.child(name)
    os.kill(old, number)
    wait_for(lambda: box.boss.children().get(name) not in (None, old), RECOVERS)


def kill_engine(box):
    """kill -9 of the engine"""
    signalled(box, "engine", signal.SIGKILL)


def kill_control(box):
    """kill -9 of weir-control"""
    signalled(box, "control", signal.SIGKILL)


def kill_all(box):
    """kill -9 of all of it, and a start"""
    box.boss.kill()
    box.start()


def upgrade(box):
    """a stop and a start"""
    assert box.boss.stop() == 0
    box.start()


def stop_engine(box):
    """SIGSTOP of the engine"""
    signalled(box, "engine", signal.SIGSTOP)


def no_descriptors(box):
    """no descriptor is free in the engine"""
    pid = box.child("engine")
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    box.app.probe(["dns", f"n{box.world.number()}.{box.site.name}"], ["tcp", box.site.v4, 7007])
    with contextlib.suppress(ProcessLookupError):  # it may rightly have ended
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def full_disk(box):
    """a full disk below the store"""
    path = box.state / "filling"
    with path.open("wb", buffering=0) as f, contextlib.suppress(OSError):
        while f.write(b"x" * 4096):
            pass
    box.app.probe(*[["dns", f"f{i}.{box.denied.name}"] for i in range(50)])
    return path.unlink


def cut_store(box):
    """the store is cut to nothing"""
    os.truncate(box.state / "events.db", 0)
    box.app.probe(["dns", f"c.{box.denied.name}"])


def broken_store(box):
    """the store is overwritten with something else"""
    with (box.state / "events.db").open("r+b") as f:
        f.write(b"\xa5" * 8192)
    box.app.probe(["dns", f"b.{box.denied.name}"])


def locked_store(box):
    """somebody holds the lock of the store"""
    db = sqlite3.connect(box.state / "events.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    box.app.probe(["dns", f"l.{box.denied.name}"])
    return db.close


def two_at_once(box):
    """a second one beside it"""
    if box.kind == "sidecar":
        second = box.pod.sidecar("--state-dir", str(box.folder / "other"), rules=policy(default="allow"), ready=False)
    else:
        second = box.host.daemon("--socket", box.folder / "other.sock", ready=False)
    assert second.process.wait(60) != 0


# What is told of them is in docs/events.md: the oldest rows make room, a broken file is moved aside.
MAY_LOSE_ROWS = (full_disk, cut_store, broken_store)
FAULTS = [kill_engine, stop_engine, kill_control, kill_all, upgrade, no_descriptors, full_disk, cut_store, broken_store,
          locked_store, two_at_once]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_nothing_gets_out_and_all_is_kept(box, table, fault):
    gaps, learned, flows = [], 0, 0
    marks = [f"mark{i}.{box.denied.name}" for i in range(5)]
    box.app.probe(*[["dns", name] for name in marks])
    wait_for(lambda: set(marks) <= box.events(), 20)
    tries = box.watch.tries()
    for _ in range(ROUNDS):
        box.watch.begin()
        end = fault(box)
        wait_for(box.watch.is_answered, RECOVERS, 0.05)
        learned += box.app.probe(["tcp", box.site.v4, 7007]).result == "ok"
        flows += box.flow.say() == "got"
        if end:
            end()
        wait_for(box.boss.healthy, RECOVERS, 0.05)
        wait_for(box.watch.is_answered, RECOVERS, 0.05)
        gaps.append(box.watch.longest)
    kept = len(set(marks) & box.events())
    table.add(fault.__doc__, box.kind, gaps, box.packets_out(), learned, flows, f"{kept}/{len(marks)}")
    box.check_answer()
    assert box.watch.tries() > tries + 50, "it was tried all the time"
    assert box.packets_out() == 0
    assert (learned, flows) == (ROUNDS, ROUNDS), str(box.boss)
    assert fault in MAY_LOSE_ROWS or kept == len(marks)
