# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of the host that come, change, go, while the engine dies and its table is taken away: after each
step everybody reaches exactly what the policy of that moment allows and what was asked for under it."""
import json
import os
import random

import pytest

from test_host_engine import engine, host, tree  # noqa: F401, pylint: disable=unused-import
from world.member import Member, cgroup_root

PORT, STEPS = 443, 70
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")

# A line of JSON in, names to ask for and addresses to connect to; what came of it out.
PROGRAM = r"""
import json, socket, struct, sys
def ask(name):
    q = struct.pack("!6H", 77, 256, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\1\0\1"
    for _ in range(3):  # where upstream is slow the answer is SERVFAIL
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(30)
            s.sendto(q, ("8.8.8.8", 53))
            code = s.recv(2048)[3] & 15
        if code != 2:
            break
    return code
def dial(address, port):
    with socket.socket() as s:
        s.settimeout(30)
        return s.connect_ex((address, port)) == 0
flows = {}
def alive(address):
    try:
        flows[address].sendall(b"x")
        return flows[address].recv(9) == b"x"
    except OSError:
        return False
def keep(wanted):
    for address in set(flows) - set(wanted):
        flows.pop(address).close()
    for address in set(wanted) - set(flows):
        flows[address] = socket.create_connection((address, 7007), 30)
for line in sys.stdin:
    names, addresses, port, wanted = json.loads(line)
    found = [[ask(n) for n in names], [dial(a, port) for a in addresses], [a for a in flows if alive(a)]]
    keep(wanted if wanted is not None else flows)
    print(json.dumps(found), flush=True)
"""


class Model:
    """A member, and what it may reach."""

    def __init__(self, number, app):
        self.number, self.app = number, app
        self.policy, self.learned = None, set()  # None: it is free
        self.started = app.start("/usr/bin/python3", "-IS", "-c", PROGRAM)

    def do(self, names, addresses, flows=None):
        """@flows: the addresses to which a connection is to be open in the end; None: those that are."""
        self.started.say(json.dumps([names, addresses, PORT, flows]) + "\n")
        return json.loads(self.started.line())

    def check(self, sites, history):
        names = random.sample(sites, random.randrange(len(sites))) if self.policy is not None else []
        asked, reached, _ = self.do([s.name for s in names], [s.v4 for s in sites])
        for site, code in zip(names, asked):
            assert code == (0 if site in self.policy else 3), (self.number, site.name, history)
            if site in self.policy:
                self.learned.add(site)
        for site, ok in zip(sites, reached):
            assert ok == (self.policy is None or site in self.learned), (self.number, site.name, ok, history)


class Play:
    def __init__(self, engine, models, sites, ways=("dns", "tls")):
        self.engine, self.models, self.sites, self.ways = engine, models, sites, ways

    def some(self):
        return random.sample(self.sites, random.randrange(len(self.sites) + 1))

    def put(self, call, model):
        wanted = self.some()
        verify = random.choice(self.ways)
        call(model, [s.name for s in wanted], verify)
        model.policy = wanted
        model.learned &= set(wanted)
        return model.number, [s.name for s in wanted], verify

    def attach(self):
        free = [m for m in self.models if m.policy is None]
        return free and self.put(lambda m, names, verify: self.engine.attach(m.number, m.app, *names, verify=verify), random.choice(free))

    def change(self):
        taken = [m for m in self.models if m.policy is not None]
        return taken and self.put(lambda m, names, verify: self.engine.change(m.number, *names, verify=verify), random.choice(taken))

    def detach(self):
        taken = [m for m in self.models if m.policy is not None]
        if taken:
            model = random.choice(taken)
            self.engine.detach(model.number)
            model.policy, model.learned = None, set()
            return model.number

    def let_go(self):
        """And it comes again, as it was."""
        taken = [m for m in self.models if m.policy is not None]
        if taken:
            model = random.choice(taken)
            self.engine.ask("forget", model.number)
            self.engine.ids.pop(model.number)
            self.put(lambda m, names, verify: self.engine.attach(m.number, m.app, *names, verify=verify), model)
            model.learned = set()
            return model.number

    def die(self):
        self.engine.restart()

    def take_away(self):
        self.engine.ask("tamper")
        self.engine.wait_until_repaired()


@pytest.mark.parametrize("seed", [int(os.environ.get("WEIR_SEED", n)) for n in (1, 2, 3)])
def test_whatever_happens(engine, host, tree, world, seed):
    random.seed(seed)
    sites = [world.site(f"r{seed}-{n}.test") for n in range(4)]
    nested = tree.cgroup("deep").below("deeper")
    members = [Member(host, tree.cgroup("a")), Member(host, tree.cgroup("b")), Member(host, nested), Member(host, uid=1203),
               Member(host, uid=1204)]
    models = [Model(n, m) for n, m in enumerate(members, 1)]
    play, history = Play(engine, models, sites), []
    engine.load()
    steps = [play.attach] * 4 + [play.change] * 4 + [play.detach] * 2 + [play.let_go, play.die, play.take_away]
    for _ in range(STEPS):
        step = random.choice(steps)
        history.append((step.__name__, step()))
        for model in models:
            model.check(sites, history)


def members(host, tree):
    nested = tree.cgroup("deep").below("deeper")
    return [Member(host, tree.cgroup("a")), Member(host, tree.cgroup("b")), Member(host, nested), Member(host, uid=1203)]


@pytest.mark.parametrize("seed", [int(os.environ.get("WEIR_SEED", n)) for n in (1, 2)])
def test_open_connections_go_by_the_policy_of_the_moment(engine, host, tree, world, seed):
    """Policies that differ in names alone have the same rules: a connection of before must not live on for that."""
    random.seed(seed)
    sites = [world.site(f"f{seed}-{n}.test") for n in range(3)]
    models = [Model(n, m) for n, m in enumerate(members(host, tree), 1)]
    play, history = Play(engine, models, sites, ("dns",)), []
    engine.load()
    steps = [play.attach] * 3 + [play.change] * 6 + [play.detach, play.let_go, play.die]
    open_flows, before = {m: set() for m in models}, {m: None for m in models}
    for _ in range(STEPS):
        step = random.choice(steps)
        history.append((step.__name__, step()))
        for model in models:
            by_address = {s.v4: s for s in sites}
            # only some of them say something: others are silent while policies come and go
            if random.random() < 0.4:
                continue
            alive = {by_address[a] for a in model.do([], [])[2]}
            for site in open_flows[model]:
                if model.policy is not None and site not in model.policy:
                    assert site not in alive, (model.number, site.name, history)
            names = [s for s in sites if model.policy is not None and s in model.policy]
            model.learned.update(names)
            wanted = [s for s in sites if model.policy is None or s in model.policy]
            model.do([s.name for s in names], [], [])
            model.do([], [], [s.v4 for s in wanted])
            open_flows[model] = set(wanted)
