# SPDX-License-Identifier: Apache-2.0
"""Policies change at random while whoever guards is killed at random, under load: nothing gets out, what is in force is
what the last answer said, and flows, learned addresses and events are kept. WEIR_KILLS, WEIR_CHANGES and WEIR_SEED choose
how many and which."""
import contextlib
import json
import os
import random
import signal
import statistics
import threading

import pytest

from world.watched import Watch, watched
from world.member import Member, cgroup_root
from world.sidecar import Flow, policy, wait_for

KILLS = int(os.environ.get("WEIR_KILLS", 12))
CHANGES = int(os.environ.get("WEIR_CHANGES", 120))
SEED = int(os.environ.get("WEIR_SEED", 14))
LOOK_EVERY = 10
RECOVERS = 60
PORT = 7007
FIRST_PORT, PORTS = 16000, 5000  # that names are asked from: above Weir's own, below those that the kernel gives
# A line of JSON in: names to ask for, addresses to connect to. Out: what came of each. No question leaves from a port that
# another one has left from: the kernel may still hold that one's flow.
ASKER = r"""
import itertools, json, socket, struct, sys
ports = itertools.cycle(range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])))
def ask(name):
    q = struct.pack("!6H", 77, 256, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\1\0\1"
    for _ in range(40):  # as a stub resolver: the engine may be away for a moment
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.25)
            s.bind(("", next(ports)))
            try:
                s.sendto(q, ("8.8.8.8", 53))
                code = s.recv(2048)[3] & 15
            except OSError:
                continue
            if code != 2:
                return code
    return -1
def dial(address, port):
    with socket.socket() as s:
        s.settimeout(5)
        return s.connect_ex((address, port)) == 0
for line in sys.stdin:
    names, addresses, port = json.loads(line)
    print(json.dumps([[ask(n) for n in names], [dial(a, port) for a in addresses]]), flush=True)
"""


class One:
    """A sandbox that whoever guards it has, with what is allowed there now."""

    def __init__(self, boss, where, app, home, sites, port):
        self.boss, self.where, self.home, self.sites = boss, where, home, sites
        self.allowed = []
        self.asker = app.start("/usr/bin/python3", "-IS", "-c", ASKER, port, PORTS)
        self.flow = Flow(app, home.v4)

    def change(self, rng):
        """Another policy. Return: whether it was taken; what was refused or not answered may be in force or not."""
        wanted = rng.sample(self.sites, rng.randrange(len(self.sites) + 1))
        rules = [f"allow {self.home.name}", *(f"allow {s.name}" for s in wanted)]
        try:
            reply = self.boss().call("POST", self.where, policy(*rules), timeout=RECOVERS)
        except OSError:
            return False
        if reply.status == 200:
            self.allowed = wanted
        return reply.status == 200

    def read_again(self):
        """What is in force, as the API has it."""
        reply = wait_for(lambda: (r := self._get()) and r.status == 200 and r, RECOVERS)
        rules = reply.json()
        rules = rules.get("policy", rules)
        named = {r["target"] for r in rules["egress"] if r["action"] == "allow"}
        assert self.home.name in named
        return [s for s in self.sites if s.name in named]

    def _get(self):
        with contextlib.suppress(OSError):
            return self.boss().get(self.where)

    def check(self):
        """Names and addresses go by what is in force."""
        self.asker.say(json.dumps([[s.name for s in self.sites], [s.v4 for s in self.sites], PORT]) + "\n")
        line = self.asker.line()
        assert line, self.asker.process.stderr.read()[-500:]
        codes, reached = json.loads(line)
        assert codes == [0 if s in self.allowed else 3 for s in self.sites], (codes, [s.name for s in self.allowed], str(self.boss()))
        assert reached == [s in self.allowed for s in self.sites], (reached, [s.name for s in self.allowed], str(self.boss()))

    def dial_learned(self):
        """Without a question: who was learned before the kill."""
        self.asker.say(json.dumps([[], [s.v4 for s in self.sites], PORT]) + "\n")
        return json.loads(self.asker.line())[1] == [s in self.allowed for s in self.sites]


def kill_engine(box):
    kill_child(box, "engine")


def kill_control(box):
    kill_child(box, "control")


def kill_supervisor(box):
    box.kill_supervisor()
    box.start()


def kill_all(box):
    box.boss.kill()
    box.start()


def kill_child(box, name):
    old = box.child(name)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: box.boss.children().get(name) not in (None, old), RECOVERS)


VICTIMS = [kill_engine] * 3 + [kill_control] * 3 + [kill_supervisor, kill_all]


class Play:
    def __init__(self, box, ones, rng):
        self.box, self.ones, self.rng = box, ones, rng
        self.gaps, self.kept_flows, self.kept_learned, self.kills = [], 0, 0, 0

    def change(self):
        one = self.rng.choice(self.ones)
        assert one.change(self.rng), str(self.box.boss)
        return one

    def kill(self):
        """With a change under way every other time."""
        victim, one = self.rng.choice(VICTIMS), self.rng.choice(self.ones)
        for each in self.ones:
            each.check()
        self.box.watch.begin()
        before, under_way = list(one.allowed), self.rng.random() < 0.5
        changing = threading.Thread(target=one.change, args=(self.rng,))
        if under_way:
            changing.start()
        victim(self.box)
        if under_way:
            changing.join()
        wait_for(self.box.boss.healthy, RECOVERS, 0.02)
        wait_for(self.box.watch.is_answered, RECOVERS, 0.02)
        answered = list(one.allowed) != before
        now = one.read_again()
        assert not answered or now == one.allowed or set(now) == set(one.allowed), "what was answered is in force"
        one.allowed = now
        self.gaps.append(self.box.watch.longest)
        self.kills += 1
        if not under_way:
            self.kept_learned += all(each.dial_learned() for each in self.ones)
        else:
            self.kept_learned += 1
        self.kept_flows += all(each.flow.say() == "got" for each in self.ones)
        for each in self.ones:
            each.check()

    def run(self, kills, changes):
        """All of them, in any order."""
        moves = [self.kill] * kills + [self.change] * changes
        self.rng.shuffle(moves)
        for number, move in enumerate(moves):
            one = move()
            if one and number % LOOK_EVERY == 0:
                one.check()
            for pod in {self.box.host, self.box.link}:
                pod.capture.read()


@pytest.mark.parametrize("product", ["sidecar", "daemon"])
def test_kills_and_changes_under_load(product, world, site, denied, tmp_path, record_property):
    if product == "daemon" and not cgroup_root():
        pytest.skip("no cgroup v2 here")
    rng = random.Random(SEED)
    sites = [world.site(f"kills-{world.number()}.test") for _ in range(3)]
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(watched("sidecar" if product == "sidecar" else "netns", world, site, denied, tmp_path))
        apps = [("/policy" if product == "sidecar" else "/sandboxes/one/policy", box.app)]
        if product == "daemon":
            group = Member(box.host, box.tree.cgroup("g"))
            user = Member(box.host, uid=1904)
            for name, app, where in (("two", group, {"cgroup": str(group.cgroup.path)}), ("three", user, {"uid": 1904})):
                reply = box.boss.call("PUT", f"/sandboxes/{name}", {**where, "policy": json.loads(policy(f"allow {site.name}"))})
                assert reply.status == 201, reply
                apps.append((f"/sandboxes/{name}/policy", app))
                app.probe(["dns", site.name])
        watches = [Watch(app, site, denied) for _, app in apps[1:]]
        for each in watches:
            stack.callback(each.close)
        ones = [One(lambda: box.boss, where, app, site, sites, FIRST_PORT + PORTS * i) for i, (where, app) in enumerate(apps)]
        marks = [f"mark{i}.{denied.name}" for i in range(5)]
        box.app.probe(*[["dns", name] for name in marks])
        wait_for(lambda: set(marks) <= box.events())
        before_host = len(box.host.packets(dst=denied.v4))
        for one in ones:
            assert one.change(rng), str(box.boss)
        play = Play(box, ones, rng)
        try:
            play.run(KILLS, CHANGES)
        finally:
            kept = len(set(marks) & box.events())
            out = box.packets_out() + len(box.host.packets(dst=denied.v4)) - before_host
            record_property("fault", [f"{play.kills} kills and {CHANGES} changes under load", product, play.kills, out,
                                      f"{statistics.median(play.gaps or [0]):.0f}", f"{max(play.gaps, default=0):.0f}",
                                      f"{play.kept_learned}/{play.kills}", f"{play.kept_flows}/{play.kills}", f"{kept}/{len(marks)}"])
        assert out == 0
        assert (play.kept_learned, play.kept_flows, kept) == (KILLS, KILLS, len(marks)), str(box.boss)
        assert all(each.tries() > 50 for each in [box.watch, *watches]), "it was tried all the time"
