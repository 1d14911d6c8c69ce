# SPDX-License-Identifier: Apache-2.0
"""A namespace, a control group and a user come, change and go while whoever guards them is killed, and a `weir run` changes: after each step
everybody reaches what the policy of that moment allows and was asked for, and nothing else. WEIR_STEPS and WEIR_SEED choose
how long and which."""
import contextlib
import json
import os
import random
import signal
import time

import pytest

from world.guarded import Run
from world.member import Member, Tree, cgroup_root
from world.sidecar import Pod, policy, wait_for

PORT = 443
STEPS = int(os.environ.get("WEIR_STEPS", 200))
SEED = int(os.environ.get("WEIR_SEED", 11))
SURE_S = 45  # what was learned is known at least as long
# A line of JSON in, names to ask for and addresses to connect to; what came of it out. No question leaves from a port that
# another one has left from: the kernel may still hold that one's flow for what its sender was then.
PROGRAM = r"""
import itertools, json, socket, struct, sys
ports = itertools.count(int(sys.argv[1]))
def ask(name):
    q = struct.pack("!6H", 77, 256, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\1\0\1"
    for _ in range(3):  # where upstream is slow the answer is SERVFAIL
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(30)
            s.bind(("", next(ports)))
            s.sendto(q, ("8.8.8.8", 53))
            code = s.recv(2048)[3] & 15
        if code != 2:
            break
    return code
def dial(address, port):
    with socket.socket() as s:
        s.settimeout(30)
        return s.connect_ex((address, port)) == 0
for line in sys.stdin:
    names, addresses, port = json.loads(line)
    print(json.dumps([[ask(n) for n in names], [dial(a, port) for a in addresses]]), flush=True)
"""
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


def program(ports):
    return "/usr/bin/python3", "-IS", "-c", PROGRAM, str(ports)


class Player:
    """One that may be guarded: where it lives, and what it may reach."""

    def __init__(self, name, app, where, ports):
        self.name, self.app, self.where = name, app, where
        self.allowed = None  # a list of sites; None: it is free
        self.learned = {}    # site: when
        self.started = self.start(ports)

    def start(self, ports):
        return self.app.start(*program(ports))

    def put(self, call, sites, rng):
        allowed = rng.sample(sites, rng.randrange(len(sites) + 1))
        verify = rng.choice(["dns", "tls"])
        policy = {"defaultAction": "deny", "verify": verify, "egress": [{"action": "allow", "target": s.name} for s in allowed]}
        reply = call(policy)
        assert reply.status in (200, 201), reply
        self.allowed = allowed
        self.learned = {s: at for s, at in self.learned.items() if s in allowed}
        return [s.name for s in allowed], verify

    def check(self, sites, rng, history):
        asked = rng.sample(sites, rng.randrange(1, len(sites) + 1)) if self.allowed is not None else []
        self.started.say(json.dumps([[s.name for s in asked], [s.v4 for s in sites], PORT]) + "\n")
        line = self.started.line()
        if not line:
            self.started.process.wait()
            assert False, (history[-1], self.name, "got no answer", self.started.process.stderr.read().decode()[-300:])
        codes, reached = json.loads(line)
        now = time.monotonic()
        for site, code in zip(asked, codes):
            assert code == (0 if site in self.allowed else 3), (self.name, site.name, code, history)
            if code == 0:
                self.learned[site] = now
        for site, ok in zip(sites, reached):
            if self.allowed is None:
                assert ok, (self.name, "is free", history)
            elif site not in self.learned:
                assert not ok, (self.name, site.name, "passed", history)
            elif now - self.learned[site] < SURE_S:
                assert ok, (self.name, site.name, "is allowed", history)


class RunPlayer(Player):
    """A `weir run`: it is guarded from its beginning to its end, by nobody who is killed."""

    def __init__(self, name, box):
        super().__init__(name, box, None, None)
        self.allowed = []

    def start(self, ports):
        return self.app.started


class Play:
    def __init__(self, host, players, run, sites, rng):
        self.host, self.sites, self.rng, self.run_player = host, sites, rng, run
        self.players = [*players, run]
        self.daemon = host.daemon()

    def one(self, guarded):
        found = [p for p in self.players if (p.allowed is not None) == guarded and p is not self.run_player]
        return self.rng.choice(found) if found else None

    def attach(self):
        player = self.one(False)
        if player:
            player.learned = {}
            return player.name, player.put(lambda policy: self.daemon.call("PUT", f"/sandboxes/{player.name}", {**player.where, "policy": policy}), self.sites, self.rng)

    def change(self):
        player = self.one(True)
        if player:
            return player.name, player.put(lambda policy: self.daemon.call("PUT", f"/sandboxes/{player.name}/policy", policy), self.sites, self.rng)

    def change_run(self):
        run = self.run_player
        return run.name, run.put(lambda policy: run.app.send("POST", "/policy", json.dumps(policy)), self.sites, self.rng)

    def detach(self):
        player = self.one(True)
        if player:
            assert self.daemon.call("DELETE", f"/sandboxes/{player.name}").status == 200
            player.allowed, player.learned = None, {}
            return player.name

    def kill_engine(self):
        self.daemon.kill_child("engine")

    def kill_control(self):
        self.daemon.kill_child("control")

    def kill_porter(self):
        if "spawner" in self.daemon.children():
            os.kill(self.daemon.children()["spawner"], signal.SIGKILL)
            wait_for(lambda: "spawner" not in self.daemon.children())

    def kill_all(self):
        self.daemon.kill()
        self.daemon = self.host.daemon()

    def run(self, steps):
        moves = [self.attach] * 4 + [self.change] * 4 + [self.detach] * 2
        moves += [self.change_run] * 2 + [self.kill_engine, self.kill_control, self.kill_porter, self.kill_all]
        history = []
        for _ in range(steps):
            move = self.rng.choice(moves)
            history.append((move.__name__, move()))
            for player in self.players:
                player.check(self.sites, self.rng, history[-8:])
            want = sorted(p.name for p in self.players if p.allowed is not None and p is not self.run_player)
            assert sorted(self.daemon.names()) == want, history[-8:]
        return history


def test_whatever_happens_to_each_kind(host, world):
    tree = Tree()
    rng = random.Random(SEED)
    sites = [world.site(f"kinds-{world.number()}.test") for _ in range(3)]
    group = tree.cgroup("a")
    try:
        with Pod(world) as pod, Pod(world) as second, contextlib.closing(Run("run", world, policy(), command=program(25000))) as run:
            players = [Player("space", pod, {"netns": pod.ns.path}, 5000),
                       Player("second", second, {"netns": second.ns.path}, 20000), Player("group", Member(host, group), {"cgroup": str(group.path)}, 10000),
                       Player("user", Member(host, uid=1205), {"uid": 1205}, 15000)]
            history = Play(host, players, RunPlayer("run", run), sites, rng).run(STEPS)
            assert {name for name, done in history if done} >= {"attach", "change", "change_run", "detach"}
    finally:
        host.close()
        tree.close()
